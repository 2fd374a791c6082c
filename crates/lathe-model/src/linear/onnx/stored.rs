//! Weight matrices as a file has them: floats, rows of codes, and blocks of codes as MatMulNBits reads them.

use super::{Blocks, Form, form};
use crate::onnx::{OnnxPass, Table};
use crate::params::ParamId;
use lathe_onnx::{Kind, Tensor, Value};
use lathe_ops::gemm::Mat;
use lathe_ops::integers::Integers;
use lathe_ops::storage::{F32, Storage};
use std::ops::Range;
use std::sync::Arc;

/// Codes of one or several matrices with the same inputs, one below another.
pub(super) struct Codes(pub Vec<(Arc<Integers>, Range<usize>)>);

impl Codes {
    pub fn inputs(&self) -> usize {
        self.0[0].0.inputs()
    }

    pub fn outputs(&self) -> usize {
        self.0.iter().map(|(_, rows)| rows.len()).sum()
    }

    /// Shows the codes of each output, as signed bytes around 0.
    pub fn each(&self, mut see: impl FnMut(usize, &[u8])) {
        let mut row = vec![0; self.inputs()];
        let rows = self.0.iter().flat_map(|(w, rows)| rows.clone().map(move |o| (w, o)));
        for (at, (w, o)) in rows.enumerate() {
            w.codes(o, &mut row);
            row.iter_mut().for_each(|code| *code = code.wrapping_sub(w.format().middle()));
            see(at, &row);
        }
    }

    /// Scales of outputs, each as often as there are to be blocks, and what is added to codes around 0.
    pub fn sides(&self, blocks: usize) -> (Vec<f32>, Option<Vec<f32>>) {
        let (mut scales, mut offsets) = (Vec::new(), Vec::new());
        for (w, rows) in &self.0 {
            let groups = w.format().groups(w.inputs());
            let middle = f32::from(w.format().middle());
            let (all, shifts) = (w.scales(), w.offsets());
            for side in rows.clone().flat_map(|row| (0..groups).map(move |g| row * groups + g)) {
                let times = if groups == 1 { blocks } else { 1 };
                scales.extend(std::iter::repeat_n(all[side], times));
                offsets.extend(
                    shifts.get(side).map(|shift| vec![shift + all[side] * middle; times]).into_iter().flatten(),
                );
            }
        }
        (scales, Some(offsets).filter(|offsets| !offsets.is_empty()))
    }
}

/// Rows of tokens of a parameter [n, e], for numbers of tokens [B, T].
pub(crate) fn token_rows(pass: &mut OnnxPass<'_>, id: ParamId, ids: &Value) -> Value {
    let param = pass.params.param(id);
    let [rows, width] = [param.shape[0], param.shape[1]];
    let form = param.integers().first().map_or(Form::Floats, |w| form(w, param.activations()));
    let table = pass.tables.get(&id).cloned().unwrap_or_else(|| {
        let codes = || Codes(vec![(param.integers()[0].clone(), 0..rows)]);
        let table = match form {
            Form::Floats => {
                let values = param.read();
                let storage: &dyn Storage = if param.integers().is_empty() { param.storage() } else { &F32 };
                let codes = floats(pass, &param.name, Mat::new(&values, rows, width), [rows, width], storage);
                Table { codes, scales: None, offsets: None }
            }
            Form::Rows => {
                let (codes, mut all) = (codes(), Vec::with_capacity(rows * width));
                codes.each(|_, row| all.extend_from_slice(row));
                let stored = pass.graph.weight(&param.name, Tensor::new(Kind::I8, &[rows, width], all));
                sided(pass, &param.name, stored, codes.sides(1), &[rows, 1])
            }
            Form::Blocks(form) => blocks(pass, &param.name, &codes(), form),
        };
        pass.tables.insert(id, table.clone());
        table
    });
    let gather = |pass: &mut OnnxPass<'_>, from: &Value| pass.graph.node("Gather", &[from, ids], &[]);
    let mut x = gather(pass, &table.codes);
    let Some(scales) = &table.scales else { return x };
    let to_float = [("to", (Kind::F32 as i64).into())];
    if let Form::Blocks(Blocks { bits, .. }) = form {
        if bits == 4 {
            x = unpacked(pass, &x); // [B, T, blocks, block]
        }
        x = pass.graph.node("Cast", &[&x], &to_float);
        let zero = pass.graph.float((1 << (bits - 1)) as f32);
        x = pass.graph.node("Sub", &[&x, &zero], &[]);
    } else {
        x = pass.graph.node("Cast", &[&x], &to_float);
    }
    for (op, side) in [("Mul", Some(scales)), ("Add", table.offsets.as_ref())] {
        let Some(side) = side else { continue };
        let mut side = gather(pass, side);
        if form != Form::Rows {
            let last = pass.graph.ints(&[-1]);
            side = pass.graph.node("Unsqueeze", &[&side, &last], &[]); // [B, T, blocks, 1]
        }
        x = pass.graph.node(op, &[&x, &side], &[]);
    }
    if let Form::Blocks(Blocks { block, .. }) = form {
        x = pass.reshape(&x, &[0, 0, -1]);
        if !width.is_multiple_of(block) {
            let (from, to, axis) = (pass.graph.ints(&[0]), pass.graph.ints(&[width as i64]), pass.graph.ints(&[-1]));
            x = pass.graph.node("Slice", &[&x, &from, &to, &axis], &[]);
        }
    }
    x
}

/// A matrix as f32, whatever floats it is stored as.
pub(super) fn floats(
    pass: &mut OnnxPass<'_>,
    name: &str,
    mat: Mat<'_>,
    [rows, cols]: [usize; 2],
    storage: &dyn Storage,
) -> Value {
    let values: Vec<f32> = (0..rows).flat_map(|row| (0..cols).map(move |col| mat.at(row, col))).collect();
    let kind = match storage.dtype() {
        "F16" => Kind::F16,
        "BF16" => Kind::Bf16,
        _ => return pass.graph.weight(name, Tensor::floats(&[rows, cols], &values)),
    };
    let stored = pass.graph.weight(name, Tensor::new(kind, &[rows, cols], storage.encode(&values)));
    pass.graph.node("Cast", &[&stored], &[("to", (Kind::F32 as i64).into())])
}

/// Codes with their scales and offsets of a shape.
pub(super) fn sided(
    pass: &mut OnnxPass<'_>,
    name: &str,
    codes: Value,
    (scales, offsets): (Vec<f32>, Option<Vec<f32>>),
    shape: &[usize],
) -> Table {
    let scales = Some(pass.constant(&format!("{name}.scale"), shape, &scales));
    let offsets = offsets.map(|offsets| pass.constant(&format!("{name}.offset"), shape, &offsets));
    Table { codes, scales, offsets }
}

/// Codes as MatMulNBits reads them, [N, blocks, bytes], with scales and offsets [N, blocks].
pub(super) fn blocks(pass: &mut OnnxPass<'_>, name: &str, codes: &Codes, Blocks { bits, block, .. }: Blocks) -> Table {
    let (inputs, outputs) = (codes.inputs(), codes.outputs());
    let blocks = inputs.div_ceil(block);
    let bytes = block * bits / 8;
    let stored = pass.once(name, |pass| {
        let mut packed = Vec::with_capacity(outputs * blocks * bytes);
        let zero = 1u8 << (bits - 1);
        let mut row = vec![zero; blocks * block]; // what is beyond the end counts nothing
        codes.each(|_, codes| {
            row.iter_mut().zip(codes).for_each(|(to, code)| *to = code.wrapping_add(zero));
            match bits {
                4 => packed.extend(row.chunks_exact(2).map(|pair| pair[0] | pair[1] << 4)),
                _ => packed.extend_from_slice(&row),
            }
        });
        pass.graph.weight(name, Tensor::new(Kind::U8, &[outputs, blocks, bytes], packed))
    });
    sided(pass, name, stored, codes.sides(blocks), &[outputs, blocks])
}

/// Codes of 4 bits as bytes of their own, [B, T, blocks, block].
fn unpacked(pass: &mut OnnxPass<'_>, packed: &Value) -> Value {
    let (mask, shift, last) = (pass.graph.byte(15), pass.graph.byte(4), pass.graph.ints(&[-1]));
    let low = pass.graph.node("BitwiseAnd", &[packed, &mask], &[]);
    let high = pass.graph.node("BitShift", &[packed, &shift], &[("direction", "RIGHT".into())]);
    let [low, high] = [low, high].map(|half| pass.graph.node("Unsqueeze", &[&half, &last], &[]));
    let both = pass.graph.node("Concat", &[&low, &high], &[("axis", (-1).into())]);
    pass.reshape(&both, &[0, 0, 0, -1])
}
