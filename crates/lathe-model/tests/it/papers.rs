//! The counts that the papers print.

use crate::model;
use lathe_core::{Setting, notation};
use lathe_model::shipped::{self, MODELS};
use lathe_model::{Counts, REGISTRY, count, design};
use std::fmt::Write;

fn counts_of(name: &str, tgt_len: u64, mem_len: u64) -> Counts {
    let model = model(shipped::find(MODELS, name).unwrap().text);
    count(&model, &Setting { batch: 1, tgt_len, mem_len })
}

/// A number in a unit, as a paper prints it.
fn printed(number: u128, unit: f64, decimals: usize) -> String {
    format!("{:.decimals$}", number as f64 / unit)
}

#[test]
fn par_figure_1() {
    let block = |layers: &str| {
        let toml = "backbone='transformer_xl'\nd_model=512\nheads=8\nd_head=64\ninner=2048\nvocab=267735\n";
        let counts =
            count(&model(&format!("{toml}layers='{layers}'")), &Setting { batch: 1, tgt_len: 64, mem_len: 640 });
        counts.blocks.flops
    };
    assert_eq!(printed(block("s"), 1e9, 4), "1.3128");
    assert_eq!(printed(block("f"), 1e9, 4), "0.2684");
    assert_eq!(block("-"), 0);
    assert_eq!(block("m8k2"), 2 * 64 * 512 * 8 + 2 * block("f"));
}

#[test]
fn par_table_a2() {
    let (base, sandwich, par) = (
        counts_of("transformer_xl_base", 64, 640),
        counts_of("sandwich_base", 64, 640),
        counts_of("par_base", 64, 640),
    );
    assert_eq!(printed(base.total_params().into(), 1e6, 0), "192");
    assert_eq!(printed(sandwich.total_params().into(), 1e6, 0), "192");
    assert_eq!(printed(par.total_params().into(), 1e6, 0), "200");
    assert_eq!(printed(base.blocks.flops, 1e9, 1), "25.3");
    assert_eq!(printed(par.blocks.flops, 1e9, 1), "14.9");
    // The paper prints 27 and 17, blocks plus an output between these two: how much of the tails of the
    // adaptive softmax is evaluated depends on the text.
    for (counts, gflop) in [(&base, 27.0), (&par, 17.0)] {
        let least = counts.total_flops() as f64 / 1e9;
        let most = (counts.blocks.flops + counts.output_full_flops) as f64 / 1e9;
        assert!(least < gflop + 0.5 && most > gflop - 0.5, "{least} {gflop} {most}");
    }
    assert_eq!(printed(base.output_flops, 1e9, 2), "1.31");
}

#[test]
fn whole_models() {
    assert_eq!(counts_of("gpt2_small", 1024, 0).total_params(), 124_439_808);
    // 7 attention blocks of BERT Base become feed-forwards: 4 d (d + 1) less, and 2 d f + f + d more, each.
    let [bert, par] = ["bert_base", "par_bert"].map(|name| counts_of(name, 512, 0).total_params());
    assert_eq!(par - bert, 7 * (2 * 768 * 3072 + 3072 + 768 - 4 * 768 * 769));
    assert_eq!(counts_of("roberta_base", 512, 0).total_params(), 124_697_433);
    // The paper prints 25.3M and 15.1M; these are transformers'.
    assert_eq!(counts_of("mobilebert_base", 512, 0).total_params(), 24_581_888);
    assert_eq!(counts_of("mobilebert_tiny", 512, 0).total_params(), 15_485_696);
    assert_eq!(counts_of("mpnet_base", 512, 0).total_params(), 109_486_464);
    assert_eq!(counts_of("distilbert_base", 512, 0).total_params(), 66_985_530);
    // transfo-xl-wt103, the published Large, has cutoffs and vocabulary of the same size.
    assert_eq!(printed(counts_of("transformer_xl_large", 1, 0).total_params().into(), 1e6, 0), "285");
    let opt = counts_of("opt_350m", 2048, 0);
    assert_eq!(
        opt.total_params() - 2 * 1024 - 50272,
        331_196_416,
        "the published OPT-350M has no final norm and no bias"
    );
    assert_eq!(printed((opt.decoder_params() + opt.position_params).into(), 1e6, 1), "304.4");
}

#[test]
fn design_rules_give_the_papers_stacks() {
    let print = |stack: String| notation::print(&notation::parse(&stack, &REGISTRY).unwrap());
    assert_eq!(print(design::par(24, 5.0, None).unwrap()), "(sff)x5 (f)x9");
    for (blocks, k, stack) in [
        (32, 6, "(s)x6 (sf)x10 (f)x6"),
        (36, 6, "(s)x6 (sf)x12 (f)x6"),
        (24, 5, "(s)x5 (sf)x7 (f)x5"),
        (24, 3, "(s)x3 (sf)x9 (f)x3"),
        (24, 0, "(sf)x12"),
        (4, 2, "ssff"),
    ] {
        assert_eq!(print(design::sandwich(blocks, k).unwrap()), stack);
    }
    assert_eq!(design::par(32, 5.0, None).unwrap().matches('s').count(), 6);
    assert!(!design::par(32, 5.0, None).unwrap()[21..].contains('s'), "attention only in the first two thirds");
    assert_eq!(design::par(3, 1.5, None).unwrap(), "ssf");
    // The shipped stacks are every so many places, as the paper's prints.
    for (name, blocks, every) in [("par_24b", 24, 3), ("par_base", 32, 4), ("par_large", 36, 4), ("par_bert", 24, 3)] {
        let shipped = shipped::find(MODELS, name).unwrap().spec().unwrap().model(&REGISTRY).unwrap();
        assert_eq!(print(design::par(blocks, 5.0, Some(every)).unwrap()), shipped.layers(), "{name}");
    }
    for (blocks, every) in [(24, 0), (24, 6), (24, usize::MAX)] {
        let error = design::par(blocks, 5.0, Some(every)).unwrap_err().to_string();
        assert!(error.contains("every: found") && error.contains("1 to 5"), "{error}");
    }
    assert_eq!(design::par(3, 3.0, Some(9)).unwrap(), "sff");
    for (blocks, p) in [(3, 1.0), (0, 5.0), (10_001, 5.0), (24, 0.0), (24, -1.0), (24, f64::NAN)] {
        assert!(design::par(blocks, p, None).is_err(), "{blocks} {p}");
    }
    for (blocks, k) in [(3, 1), (4, 3), (0, 0), (10_002, 1)] {
        assert!(design::sandwich(blocks, k).is_err(), "{blocks} {k}");
    }
    assert_eq!(design::scaled("gpt2", 3, false, &REGISTRY).unwrap().layers, "sfsfsf");
    for (backbone, as_printed, widths) in
        [("gpt2", false, [768, 12, 3072]), ("gpt2", true, [1024, 12, 3072]), ("transformer_xl", true, [512, 8, 2048])]
    {
        let found = design::scaled(backbone, 3, as_printed, &REGISTRY).unwrap();
        assert_eq!([found.d_model, found.heads, found.inner], widths, "{backbone}");
    }
    assert!(
        design::scaled("gpt2", 0, false, &REGISTRY).is_err()
            && design::scaled("gpt2", usize::MAX, false, &REGISTRY).is_err()
            && design::scaled("bert", 1, false, &REGISTRY).is_err()
    );
}

/// ALBERT's tables 3 and 4, in millions: what is shared, the width of the embedding, and what is printed. Where layers share
/// nothing the paper counts no pooler.
#[test]
fn albert_tables_3_and_4() {
    for (shared, width, printed_there) in [
        ("all", 64, "10"),
        ("all", 128, "12"),
        ("all", 256, "16"),
        ("all", 768, "31"),
        ("none", 64, "87"),
        ("none", 128, "89"),
        ("none", 256, "93"),
        ("none", 768, "108"),
        ("attentions", 768, "83"),
        ("attentions", 128, "64"),
        ("ffns", 768, "57"),
        ("ffns", 128, "38"),
    ] {
        let sizes = "d_model=768\nheads=12\nvocab=30000\nhead='none'";
        let pooler = shared != "none";
        let model = model(&format!(
            "backbone='albert'\nlayers='(sf)x12'\n{sizes}\nd_embed={width}\nshared='{shared}'\npooler={pooler}"
        ));
        let params = count(&model, &Setting::of(&model)).total_params();
        assert_eq!(printed(params.into(), 1e6, 0), printed_there, "{shared}, {width}: {params}");
    }
    // Table 1 prints 12M, 18M, 60M and 235M.
    for (size, params) in
        [("base", 11_683_584), ("large", 17_683_968), ("xlarge", 58_724_864), ("xxlarge", 222_595_584)]
    {
        assert_eq!(counts_of(&format!("albert_{size}"), 512, 0).total_params(), params, "{size}");
    }
}

/// `s2 f1216 s4 f1280` from lists of heads and inner widths.
fn heterogeneous(heads: &str, inner: &str) -> String {
    heads.split(' ').zip(inner.split(' ')).fold(String::new(), |mut layers, (h, f)| {
        write!(layers, "s{h} f{f} ").unwrap();
        layers
    })
}

/// Every legible row of the LTS paper's Tables 3 to 7, to the printed digit. The fixture lists the others.
#[test]
fn lts_tables_3_to_7() {
    let table = include_str!("fixtures/lts_tables.csv");
    let rows: Vec<Vec<&str>> =
        table.lines().filter(|line| !line.starts_with('#')).skip(1).map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 234);
    for row in rows {
        let [table, _, _, n_layer, d_model, heads, inner, expected] = row[..] else { panic!("{row:?}") };
        let (backbone, layers) = match table {
            "3" => ("opt", format!("(s{heads} f{inner})x{n_layer}")),
            "4" | "5" => ("transformer_xl", heterogeneous(heads, inner)),
            _ => ("gpt2", heterogeneous(heads, inner)),
        };
        let model =
            model(&format!("backbone='{backbone}'\nlayers='{layers}'\nd_model={d_model}\nvocab=50264\ndiv_val=4\n"));
        assert_eq!(model.blocks.len(), 2 * n_layer.parse::<usize>().unwrap());
        let counts = count(&model, &Setting::of(&model));
        let position = if table == "3" { counts.position_params } else { 0 };
        assert_eq!(printed((counts.decoder_params() + position).into(), 1e6, 1), expected, "{row:?}");
    }
}

/// The models that LTS's authors trained: `LATHE_LTS_TABLE=FILE cargo test -- --ignored`.
#[test]
#[ignore = "needs the authors' table: LATHE_LTS_TABLE"]
fn lts_trained_models() {
    let path = std::env::var("LATHE_LTS_TABLE").expect("LATHE_LTS_TABLE names the table");
    let table = std::fs::read_to_string(path).unwrap();
    let mut lines = table.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    let mut rows = 0;
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        let cell = |name: &str| cells[header.iter().position(|h| *h == name).unwrap()];
        let layers = heterogeneous(cell("n_head"), cell("d_inner"));
        let mut toml =
            format!("layers='{layers}'\nvocab={}\ncutoffs=[{}]\n", cell("n_token"), cell("cutoffs").replace(' ', ","));
        for key in ["d_model", "div_val", "tgt_len"] {
            writeln!(toml, "{key}={}", cell(key)).unwrap();
        }
        if cell("d_embed") != "-1" {
            writeln!(toml, "d_embed={}", cell("d_embed")).unwrap();
        }
        // On LM1B the reference implementation shares no projection of Transformer-XL's clusters.
        match cell("backbone") {
            "TransXL" => writeln!(toml, "backbone='transformer_xl'\ntie_projs={}", cell("dataset") != "lm1b").unwrap(),
            _ => writeln!(toml, "backbone='gpt2'\nmax_len={}", cell("tgt_len")).unwrap(),
        }
        let model = model(&toml);
        let counts = count(&model, &Setting::of(&model));
        let of_kind = |key: &str| counts.kinds.iter().find(|(kind, _)| *kind == key).unwrap().1.params;
        let found = [of_kind("attention"), of_kind("ffn"), counts.decoder_params(), counts.total_params()];
        let expected = ["params_attn", "params_ffn", "params_nonembedding", "params_total"]
            .map(|name| cell(name).parse::<f64>().unwrap() as u64);
        assert_eq!(found, expected, "{line}");
        rows += 1;
    }
    assert!(rows > 0);
}
