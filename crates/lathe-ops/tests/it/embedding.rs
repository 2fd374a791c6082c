//! Rows of tables, and positions.

use crate::{close, graph, numbers, same_bits};
use lathe_ops::embedding;

const SCALE: f32 = 1.7;

/// Tokens that come again, out of `vocab`.
fn ids(count: usize, vocab: usize) -> Vec<u32> {
    (0..count).map(|i| (i * i * 31 % vocab) as u32).collect()
}

fn fused(table: &[f32], width: usize, ids: &[u32], dout: &[f32]) -> Vec<Vec<f32>> {
    let (mut out, mut dtable) = (vec![0.0; dout.len()], vec![0.0; table.len()]);
    embedding::gather(table, width, ids, SCALE, &mut out);
    embedding::scatter(dout, width, ids, SCALE, &mut dtable);
    vec![out, dtable]
}

#[test]
fn fused_is_composed() {
    for vocab in [1, 17, 65] {
        for width in [1, 3, 65, 193] {
            for count in [1, 3, 65] {
                let (table, dout, ids) = (numbers(vocab * width, 1), numbers(count * width, 2), ids(count, vocab));
                let (out, [dtable]) =
                    graph([(&table, &[vocab, width])], &dout, |[table]| embedding::composed(table, &ids, SCALE));
                let found = fused(&table, width, &ids, &dout);
                close("rows", &found[0], &out, 1e-6);
                close("table", &found[1], &dtable, 2e-6);
            }
        }
    }
}

#[test]
fn positions_are_rows_by_place() {
    for (batch, len, first, width) in [(1, 1, 0, 1), (2, 3, 0, 17), (3, 17, 5, 3), (2, 65, 1, 65)] {
        let (table, dx) = (numbers((first + len + 2) * width, 1), numbers(batch * len * width, 2));
        let places: Vec<u32> = (0..batch * len).map(|i| (first + i % len) as u32).collect();
        let shape = [first + len + 2, width];
        let (out, [expected]) = graph([(&table, &shape)], &dx, |[table]| embedding::composed(table, &places, 1.0));
        let (mut x, mut dtable) = (vec![0.0; dx.len()], vec![0.0; table.len()]);
        embedding::add_positions(&table, width, len, first, &mut x);
        embedding::positions_backward(&dx, width, len, first, &mut dtable);
        close("positions", &x, &out, 1e-6);
        close("table of positions", &dtable, &expected, 1e-6);
    }
}

#[test]
fn same_on_any_number_of_threads() {
    let (table, dout, ids) = (numbers(65 * 193, 1), numbers(403 * 193, 2), ids(403, 65));
    same_bits("embedding", || fused(&table, 193, &ids, &dout));
}
