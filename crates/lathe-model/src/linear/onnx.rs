//! Products with weight matrices as nodes of ONNX, in the form that ONNX Runtime runs fastest for each storage:
//!
//! | storage | product |
//! |---|---|
//! | f32; f16 and bf16, which become f32 when the file is loaded | MatMul |
//! | int8 and int6 with a scale for each row | rows of x rounded to 8 bits, then MatMulInteger |
//! | int8 and int6 in groups | MatMulNBits of 8 bits, accuracy level 4 |
//! | int4 | MatMulNBits of 4 bits, accuracy level 4; 1 where activations stay as they are |
//! | int8 and int6 where activations stay as they are | MatMul of f32 |
//!
//! Codes and scales are those of the model. Offsets become a small product of their own: with the sums of x over each
//! group.

use super::{Linear, Matrix};
use crate::onnx::{OnnxPass, Table};
use crate::params::ParamId;
use lathe_onnx::{Kind, Tensor, Value};
use lathe_ops::gemm::Mat;
use lathe_ops::integers::{Activations, Integers};
use lathe_ops::storage::{F32, Storage};

/// The largest code of rounded activations.
const LARGEST: f32 = 127.0;
/// Less than any scale that counts: rows of zeros have none of their own.
const TINY: f32 = 1e-30;
/// The code that stands for 0 in rounded activations.
const ZERO: u8 = 128;
/// Inputs of a block of MatMulNBits where a row has one scale.
const BLOCK: usize = 128;

/// What a matrix of integers is for ONNX Runtime.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// f32.
    Floats,
    /// MatMulInteger.
    Rows,
    /// MatMulNBits: bits, block, accuracy level.
    Blocks { bits: usize, block: usize, accuracy: i64 },
}

fn form(w: &Integers, activations: Activations) -> Form {
    let format = w.format();
    let block = format.group().unwrap_or(BLOCK);
    let rounded = activations == Activations::Int8;
    match (format.bits(), format.group()) {
        // The sums of x over groups need groups that are whole.
        (_, Some(group)) if format.offset() && !w.inputs().is_multiple_of(group) => Form::Floats,
        (4, None) if format.offset() && !w.inputs().is_multiple_of(BLOCK) => Form::Floats,
        (4, _) => Form::Blocks { bits: 4, block, accuracy: if rounded { 4 } else { 1 } },
        (_, Some(_)) if rounded => Form::Blocks { bits: 8, block, accuracy: 4 },
        (_, None) if rounded => Form::Rows,
        _ => Form::Floats,
    }
}

impl Linear {
    /// y = x W + b as nodes.
    pub fn onnx(&self, pass: &mut OnnxPass<'_>, x: &Value) -> Value {
        let y = self.matrix.onnx(pass, 0, x);
        let Some(bias) = self.bias else { return y };
        let Matrix { first, outputs, .. } = self.matrix;
        let (values, name) = (&pass.params.get(bias)[first..][..outputs], part_name(pass, bias, &self.matrix, 0));
        let bias = pass.constant(&name, &[outputs], values);
        pass.graph.node("Add", &[&y, &bias], &[])
    }
}

impl super::Experts {
    /// y = x W + b of one expert as nodes.
    pub fn onnx(&self, pass: &mut OnnxPass<'_>, expert: usize, x: &Value) -> Value {
        let y = self.matrix.onnx(pass, expert, x);
        let Some(bias) = self.bias else { return y };
        let outputs = self.outputs();
        let (values, name) =
            (&pass.params.get(bias)[expert * outputs..][..outputs], part_name(pass, bias, &self.matrix, expert));
        let bias = pass.constant(&name, &[outputs], values);
        pass.graph.node("Add", &[&y, &bias], &[])
    }
}

/// The name of what a matrix has of a parameter.
fn part_name(pass: &OnnxPass<'_>, id: ParamId, matrix: &Matrix, i: usize) -> String {
    let name = &pass.params.param(id).name;
    match (matrix.count, matrix.outputs == matrix.total) {
        (1, true) => name.clone(),
        (1, false) => format!("{name}.{}", matrix.first),
        _ => format!("{name}.{i}"),
    }
}

impl Matrix {
    /// y = x W of one of its matrices as nodes.
    pub fn onnx(&self, pass: &mut OnnxPass<'_>, i: usize, x: &Value) -> Value {
        let param = pass.params.param(self.weight);
        let table = pass.tables.get(&self.weight).cloned().map(|table| self.own_rows(pass, table));
        let name = part_name(pass, self.weight, self, i);
        let form = param.integers().get(i).map_or(Form::Floats, |w| form(w, param.activations()));
        match form {
            Form::Floats => {
                let w = match table {
                    Some(table) => transposed(pass, &table.rows),
                    None => self.floats(pass, &name, i),
                };
                pass.graph.node("MatMul", &[x, &w], &[])
            }
            Form::Rows => {
                let (codes, scales, offsets) = match table {
                    Some(table) => {
                        let flat = |pass: &mut OnnxPass<'_>, value: &Value| pass.reshape(value, &[-1]);
                        let scales = table.scales.as_ref().map(|scales| flat(pass, scales));
                        let offsets = table.offsets.as_ref().map(|offsets| flat(pass, offsets));
                        (transposed(pass, &table.rows), scales.expect("codes have scales"), offsets)
                    }
                    None => self.rows(pass, &name, i),
                };
                product_of_rows(pass, (x, self.inputs), &codes, &scales, offsets.as_ref())
            }
            Form::Blocks { bits, block, accuracy } => {
                let table = table.unwrap_or_else(|| {
                    let w = param.integers()[i].clone();
                    blocks(pass, &name, &w, self.first..self.first + self.outputs, (bits, block))
                });
                self.product_of_blocks(pass, x, &table, (bits, block, accuracy))
            }
        }
    }

    /// The rows of a table that are its own.
    fn own_rows(&self, pass: &mut OnnxPass<'_>, table: Table) -> Table {
        if self.outputs == self.total {
            return table;
        }
        let mut own = |value: &Value| {
            let [from, to] = [self.first, self.first + self.outputs].map(|at| pass.graph.ints(&[at as i64]));
            let axis = pass.graph.ints(&[0]);
            pass.graph.node("Slice", &[value, &from, &to, &axis], &[])
        };
        let rows = own(&table.rows);
        Table { rows, scales: table.scales.as_ref().map(&mut own), offsets: table.offsets.as_ref().map(own) }
    }

    /// W as f32, [in, out].
    fn floats(&self, pass: &mut OnnxPass<'_>, name: &str, i: usize) -> Value {
        let param = pass.params.param(self.weight);
        let storage: &dyn Storage = if param.integers().is_empty() { param.storage() } else { &F32 };
        pass.once(name, |pass| {
            let values = param.read();
            let (mat, inputs, outputs) = (self.mat(&values, i), self.inputs, self.outputs);
            floats(pass, name, mat, [inputs, outputs], storage)
        })
    }

    /// Codes [in, out] with a sign, scales [out], and offsets [out] where there are any.
    fn rows(&self, pass: &mut OnnxPass<'_>, name: &str, i: usize) -> (Value, Value, Option<Value>) {
        let w = pass.params.param(self.weight).integers()[i].clone();
        let (first, outputs, inputs) = (self.first, self.outputs, w.inputs());
        let codes = pass.once(name, |pass| {
            let mut codes = vec![0; inputs * outputs];
            let mut row = vec![0; inputs];
            for o in 0..outputs {
                w.codes(first + o, &mut row);
                row.iter().enumerate().for_each(|(i, &code)| codes[i * outputs + o] = signed(&w, code));
            }
            pass.graph.weight(name, Tensor::new(Kind::I8, &[inputs, outputs], codes))
        });
        let (scales, offsets) = sides(&w, first..first + outputs, 1);
        let scales = pass.constant(&format!("{name}.scale"), &[outputs], &scales);
        let offsets = offsets.map(|offsets| pass.constant(&format!("{name}.offset"), &[outputs], &offsets));
        (codes, scales, offsets)
    }

    fn product_of_blocks(
        &self,
        pass: &mut OnnxPass<'_>,
        x: &Value,
        table: &Table,
        (bits, block, accuracy): (usize, usize, i64),
    ) -> Value {
        let attributes = [
            ("K", (self.inputs as i64).into()),
            ("N", (self.outputs as i64).into()),
            ("bits", (bits as i64).into()),
            ("block_size", (block as i64).into()),
            ("accuracy_level", accuracy.into()),
        ];
        let scales = table.scales.as_ref().expect("codes have scales");
        let y = pass.graph.contributed("MatMulNBits", &[x, &table.rows, scales], &attributes);
        let Some(offsets) = &table.offsets else { return y };
        let sums = pass.once(format!("sums {x:?} {block}"), |pass| {
            let (zero, last) = (pass.graph.ints(&[0]), pass.graph.ints(&[-1]));
            let shape = pass.graph.node("Shape", &[x], &[]);
            let outer = pass.graph.node("Slice", &[&shape, &zero, &last, &zero], &[]);
            let inner = pass.graph.ints(&[-1, block as i64]);
            let shape = pass.graph.node("Concat", &[&outer, &inner], &[("axis", 0.into())]);
            let groups = pass.graph.node("Reshape", &[x, &shape], &[]);
            sum(pass, &groups, 0)
        });
        let offsets = transposed(pass, offsets);
        let added = pass.graph.node("MatMul", &[&sums, &offsets], &[]);
        pass.graph.node("Add", &[&y, &added], &[])
    }
}

/// Rows of tokens of a parameter [n, e], for numbers of tokens.
pub(crate) fn token_rows(pass: &mut OnnxPass<'_>, id: ParamId, ids: &Value) -> Value {
    let param = pass.params.param(id);
    let [rows, width] = [param.shape[0], param.shape[1]];
    let form = param.integers().first().map_or(Form::Floats, |w| form(w, param.activations()));
    let table = pass.tables.get(&id).cloned().unwrap_or_else(|| {
        let table = match form {
            Form::Floats => {
                let values = param.read();
                let storage: &dyn Storage = if param.integers().is_empty() { param.storage() } else { &F32 };
                let rows = floats(pass, &param.name, Mat::new(&values, rows, width), [rows, width], storage);
                Table { rows, scales: None, offsets: None }
            }
            Form::Rows => {
                let w = param.integers()[0].clone();
                let mut codes = vec![0; rows * width];
                for (o, row) in codes.chunks_exact_mut(width).enumerate() {
                    w.codes(o, row);
                    row.iter_mut().for_each(|code| *code = signed(&w, *code));
                }
                let codes = pass.graph.weight(&param.name, Tensor::new(Kind::I8, &[rows, width], codes));
                let (scales, offsets) = sides(&w, 0..rows, 1);
                let scales = pass.constant(&format!("{}.scale", param.name), &[rows, 1], &scales);
                let name = format!("{}.offset", param.name);
                let offsets = offsets.map(|offsets| pass.constant(&name, &[rows, 1], &offsets));
                Table { rows: codes, scales: Some(scales), offsets }
            }
            Form::Blocks { bits, block, .. } => {
                let w = param.integers()[0].clone();
                blocks(pass, &param.name, &w, 0..rows, (bits, block))
            }
        };
        pass.tables.insert(id, table.clone());
        table
    });
    let gather = |pass: &mut OnnxPass<'_>, from: &Value| pass.graph.node("Gather", &[from, ids], &[]);
    let mut x = gather(pass, &table.rows);
    let Some(scales) = &table.scales else { return x };
    let to_float = [("to", (Kind::F32 as i64).into())];
    if let Form::Blocks { bits, .. } = form {
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
    if let Form::Blocks { block, .. } = form {
        x = pass.reshape(&x, &[0, 0, -1]);
        if !width.is_multiple_of(block) {
            let (from, to, axis) = (pass.graph.ints(&[0]), pass.graph.ints(&[width as i64]), pass.graph.ints(&[-1]));
            x = pass.graph.node("Slice", &[&x, &from, &to, &axis], &[]);
        }
    }
    x
}

/// A matrix as f32, whatever floats it is stored as.
fn floats(pass: &mut OnnxPass<'_>, name: &str, mat: Mat<'_>, [rows, cols]: [usize; 2], storage: &dyn Storage) -> Value {
    let values: Vec<f32> = (0..rows).flat_map(|row| (0..cols).map(move |col| mat.at(row, col))).collect();
    let kind = match storage.dtype() {
        "F16" => Kind::F16,
        "BF16" => Kind::Bf16,
        _ => return pass.graph.weight(name, Tensor::floats(&[rows, cols], &values)),
    };
    let stored = pass.graph.weight(name, Tensor::new(kind, &[rows, cols], storage.encode(&values)));
    pass.graph.node("Cast", &[&stored], &[("to", (Kind::F32 as i64).into())])
}

/// A code without offset, as the bits of a signed byte.
fn signed(w: &Integers, code: u8) -> u8 {
    code.wrapping_sub(w.format().middle())
}

/// Scales of rows, each as often as there are to be blocks, and what is added to codes that stand around 0.
fn sides(w: &Integers, rows: std::ops::Range<usize>, blocks: usize) -> (Vec<f32>, Option<Vec<f32>>) {
    let groups = w.format().groups(w.inputs());
    let middle = f32::from(w.format().middle());
    let each = |all: Vec<f32>| -> Vec<f32> {
        let of_row = |row: usize| all[row * groups..][..groups].iter().copied().cycle().take(blocks).collect::<Vec<_>>();
        rows.clone().flat_map(of_row).collect()
    };
    let scales = each(w.scales());
    let offsets = w.format().offset().then(|| each(w.offsets()));
    let offsets = offsets
        .map(|offsets| offsets.iter().zip(&scales).map(|(offset, scale)| offset + scale * middle).collect());
    (scales, offsets)
}

/// Rows of codes as MatMulNBits reads them, [N, blocks, bytes], with scales and offsets [N, blocks].
fn blocks(
    pass: &mut OnnxPass<'_>,
    name: &str,
    w: &Integers,
    rows: std::ops::Range<usize>,
    (bits, block): (usize, usize),
) -> Table {
    let (inputs, count) = (w.inputs(), rows.len());
    let blocks = inputs.div_ceil(block);
    let bytes = block * bits / 8;
    let (scales, offsets) = sides(w, rows.clone(), blocks);
    let zero = 1 << (bits - 1);
    let codes = pass.once(name, |pass| {
        let mut packed = Vec::with_capacity(count * blocks * bytes);
        let mut row = vec![zero; blocks * block]; // what is beyond the end counts nothing
        for o in rows {
            w.codes(o, &mut row[..inputs]);
            row[..inputs].iter_mut().for_each(|code| *code = signed(w, *code).wrapping_add(zero));
            match bits {
                4 => packed.extend(row.chunks_exact(2).map(|pair| pair[0] | pair[1] << 4)),
                _ => packed.extend_from_slice(&row),
            }
        }
        pass.graph.weight(name, Tensor::new(Kind::U8, &[count, blocks, bytes], packed))
    });
    let scales = pass.constant(&format!("{name}.scale"), &[count, blocks], &scales);
    let offsets = offsets.map(|offsets| pass.constant(&format!("{name}.offset"), &[count, blocks], &offsets));
    Table { rows: codes, scales: Some(scales), offsets }
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

fn transposed(pass: &mut OnnxPass<'_>, rows: &Value) -> Value {
    pass.once(format!("transposed {rows:?}"), |pass| {
        pass.graph.node("Transpose", &[rows], &[("perm", [1, 0][..].into())])
    })
}

/// Sums over the last axis.
fn sum(pass: &mut OnnxPass<'_>, x: &Value, keep: i64) -> Value {
    let last = pass.graph.ints(&[-1]);
    pass.graph.node("ReduceSum", &[x, &last], &[("keepdims", keep.into())])
}

/// y = x W with codes [in, out]: each row of x is rounded to 8 bits by a scale of its own, as products here do.
fn product_of_rows(
    pass: &mut OnnxPass<'_>,
    (x, width): (&Value, usize),
    codes: &Value,
    scales: &Value,
    offsets: Option<&Value>,
) -> Value {
    // What is made of x is made once, for all matrices that it enters.
    let row_scales = pass.once(format!("row scales {x:?}"), |pass| {
        let size = pass.graph.node("Abs", &[x], &[]);
        let last = pass.graph.ints(&[-1]);
        let most = pass.graph.node("ReduceMax", &[&size, &last], &[("keepdims", 1.into())]); // [B, T, 1]
        let (largest, tiny) = (pass.graph.float(1.0 / LARGEST), pass.graph.float(TINY));
        let scale = pass.graph.node("Mul", &[&most, &largest], &[]);
        pass.graph.node("Max", &[&scale, &tiny], &[])
    });
    let rounded = pass.once(format!("rounded {x:?}"), |pass| {
        let flat = pass.reshape(&row_scales, &[-1]); // [B * T]
        let zero = pass.graph.byte(ZERO);
        let shape = pass.graph.node("Shape", &[&flat], &[]);
        let zeros = pass.graph.node("Expand", &[&zero, &shape], &[]);
        let rows = pass.reshape(x, &[-1, width as i64]);
        let shape = pass.graph.node("Shape", &[x], &[]);
        let rounded = pass.graph.node("QuantizeLinear", &[&rows, &flat, &zeros], &[("axis", 0.into())]);
        pass.graph.node("Reshape", &[&rounded, &shape], &[])
    });
    let zero = pass.graph.byte(ZERO);
    let sums = pass.graph.node("MatMulInteger", &[&rounded, codes, &zero], &[]);
    let sums = pass.graph.node("Cast", &[&sums], &[("to", (Kind::F32 as i64).into())]);
    let y = pass.graph.node("Mul", &[&sums, scales], &[]);
    let y = pass.graph.node("Mul", &[&y, &row_scales], &[]);
    let Some(offsets) = offsets else { return y };
    let sums = pass.once(format!("sums {x:?}"), |pass| sum(pass, x, 1));
    let added = pass.graph.node("Mul", &[&sums, offsets], &[]); // [B, T, 1] times [N]
    pass.graph.node("Add", &[&y, &added], &[])
}
