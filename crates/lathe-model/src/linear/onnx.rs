//! Products with weight matrices as nodes of ONNX, in the form that ONNX Runtime runs fastest for each storage:
//!
//! | storage | product |
//! |---|---|
//! | f32; f16 and bf16, which become f32 when the file is loaded | MatMul |
//! | int8 and int6 with a scale for each row | DynamicQuantizeMatMul; MatMulIntegerToFloat after a non-linearity |
//! | int8 and int6 in groups | MatMulNBits of 8 bits, accuracy level 4 |
//! | int4 | MatMulNBits of 4 bits, accuracy level 4; 1 where activations stay as they are |
//! | int8 and int6 where activations stay as they are | MatMul of f32 |
//!
//! Codes and scales are those of the model. Offsets become a small product of their own: with the sums of x over each
//! group. Matrices with the same input are one product, so that it is rounded once.
//!
//! DynamicQuantizeMatMul rounds x by one scale for all rows. That does no harm after a norm or attention, but rows of what
//! leaves a non-linearity are too different: there each is rounded by a scale of its own, as products of lathe do everywhere.

use super::{Experts, Linear, Matrix};
use crate::onnx::{OnnxPass, Table};
use crate::params::{ParamId, Params};
use lathe_onnx::{Kind, Tensor, Value};
use lathe_ops::gemm::Mat;
use lathe_ops::integers::{Activations, Integers};
use lathe_ops::storage::{F32, Storage};
use std::ops::Range;
use std::sync::Arc;

/// The largest code of rounded activations.
const LARGEST: f32 = 127.0;
/// Less than any scale that counts: rows of zeros have none of their own.
const TINY: f32 = 1e-30;
/// The code that stands for 0 in rounded activations.
const ZERO: u8 = 128;
/// Inputs of a block of MatMulNBits where a row has one scale.
const BLOCK: usize = 128;

/// The shape of a number for each row: ONNX Runtime gives sums over no rows another.
const EACH_ROW: &[i64] = &[0, -1, 1];

/// What a matrix of integers is for ONNX Runtime.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// f32.
    Floats,
    /// A scale for each output.
    Rows,
    /// MatMulNBits.
    Blocks(Blocks),
}

/// How MatMulNBits reads codes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Blocks {
    bits: usize,
    /// Inputs with one scale.
    block: usize,
    /// What x is rounded to: 4 stands for 8 bits, 1 for f32.
    accuracy: i64,
}

fn form(w: &Integers, activations: Activations) -> Form {
    let format = w.format();
    let block = format.group().unwrap_or(BLOCK);
    let rounded = activations == Activations::Int8;
    match (format.bits(), format.group()) {
        // The sums of x over groups need groups that are whole.
        (_, Some(group)) if format.offset() && !w.inputs().is_multiple_of(group) => Form::Floats,
        (4, None) if format.offset() && !w.inputs().is_multiple_of(BLOCK) => Form::Floats,
        (4, _) => Form::Blocks(Blocks { bits: 4, block, accuracy: if rounded { 4 } else { 1 } }),
        (_, Some(_)) if rounded => Form::Blocks(Blocks { bits: 8, block, accuracy: 4 }),
        (_, None) if rounded => Form::Rows,
        _ => Form::Floats,
    }
}

/// Codes of one or several matrices with the same inputs, one below another.
struct Codes(Vec<(Arc<Integers>, Range<usize>)>);

impl Codes {
    fn inputs(&self) -> usize {
        self.0[0].0.inputs()
    }

    fn outputs(&self) -> usize {
        self.0.iter().map(|(_, rows)| rows.len()).sum()
    }

    /// Shows the codes of each output, as signed bytes around 0.
    fn each(&self, mut see: impl FnMut(usize, &[u8])) {
        let mut row = vec![0; self.inputs()];
        let rows = self.0.iter().flat_map(|(w, rows)| rows.clone().map(move |o| (w, o)));
        for (at, (w, o)) in rows.enumerate() {
            w.codes(o, &mut row);
            row.iter_mut().for_each(|code| *code = code.wrapping_sub(w.format().middle()));
            see(at, &row);
        }
    }

    /// Scales of outputs, each as often as there are to be blocks, and what is added to codes around 0.
    fn sides(&self, blocks: usize) -> (Vec<f32>, Option<Vec<f32>>) {
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

impl Linear {
    /// y = x W + b as nodes, [B, T, out] for [B, T, in].
    pub fn onnx(&self, pass: &mut OnnxPass<'_>, x: &Value) -> Value {
        Self::onnx_parts(std::slice::from_ref(self), pass, x).remove(0)
    }

    /// y = x W + b of several layers with the same input as nodes; integers of one format are one product.
    pub fn onnx_parts(linears: &[Self], pass: &mut OnnxPass<'_>, x: &Value) -> Vec<Value> {
        let forms: Vec<Form> = linears.iter().map(|linear| linear.matrix.form(pass.params, 0)).collect();
        let together = linears.len() > 1 && forms[0] != Form::Floats && forms.iter().all(|form| *form == forms[0]);
        if !together {
            let one = |linear: &Self| {
                let bias = linear.bias.map(|id| linear.matrix.bias(pass.params, id, 0));
                linear.matrix.onnx(pass, 0, x, bias)
            };
            return linears.iter().map(one).collect();
        }
        let codes = Codes(linears.iter().map(|linear| linear.matrix.codes(pass.params, 0)).collect());
        let mut bias: Vec<f32> = Vec::new();
        for linear in linears {
            let own = linear.bias.map(|id| linear.matrix.bias(pass.params, id, 0).1);
            bias.extend(own.map_or_else(|| vec![0.0; linear.outputs()], |own| own.to_vec()));
        }
        let first = &linears[0];
        let name = format!("{}.and_{}_more", pass.params.param(first.matrix.weight).name, linears.len() - 1);
        let bias = linears.iter().any(|linear| linear.bias.is_some()).then(|| (format!("{name}.bias"), &*bias));
        let y = product(pass, forms[0], x, &name, &codes, bias);
        let sizes: Vec<usize> = linears.iter().map(Self::outputs).collect();
        pass.parts_of(&y, &sizes)
    }
}

impl Experts {
    /// y = x W + b of one expert as nodes, [1, N, out] for [1, N, in]; there may be no row.
    pub fn onnx(&self, pass: &mut OnnxPass<'_>, expert: usize, x: &Value) -> Value {
        let bias = self.bias.map(|id| self.matrix.bias(pass.params, id, expert));
        self.matrix.onnx(pass, expert, x, bias)
    }
}

impl Matrix {
    fn form(&self, params: &Params, i: usize) -> Form {
        let param = params.param(self.weight);
        param.integers().get(i).map_or(Form::Floats, |w| form(w, param.activations()))
    }

    fn codes(&self, params: &Params, i: usize) -> (Arc<Integers>, Range<usize>) {
        (params.param(self.weight).integers()[i].clone(), self.first..self.first + self.outputs)
    }

    /// The name of what it has of a parameter.
    fn name(&self, params: &Params, id: ParamId, i: usize) -> String {
        let name = &params.param(id).name;
        match (self.count, self.outputs == self.total) {
            (1, true) => name.clone(),
            (1, false) => format!("{name}.{}", self.first),
            _ => format!("{name}.{i}"),
        }
    }

    /// Its part of a bias, with its name.
    fn bias<'a>(&self, params: &'a Params, id: ParamId, i: usize) -> (String, &'a [f32]) {
        (self.name(params, id, i), &params.get(id)[i * self.total + self.first..][..self.outputs])
    }

    /// y = x W + b of one of its matrices as nodes.
    fn onnx(&self, pass: &mut OnnxPass<'_>, i: usize, x: &Value, bias: Option<(String, &[f32])>) -> Value {
        let (form, name) = (self.form(pass.params, i), self.name(pass.params, self.weight, i));
        let table = pass.tables.get(&self.weight).cloned();
        if form != Form::Floats {
            let codes = Codes(vec![self.codes(pass.params, i)]);
            return match table {
                Some(table) => {
                    let table = self.own_rows(pass, table);
                    product_of(pass, form, x, &codes, &table, bias)
                }
                None => product(pass, form, x, &name, &codes, bias),
            };
        }
        let w = match table {
            Some(table) => {
                let own = self.own_rows(pass, table);
                transposed(pass, &own.codes)
            }
            None => {
                let param = pass.params.param(self.weight);
                let storage: &dyn Storage = if param.integers().is_empty() { param.storage() } else { &F32 };
                // A projection may be read both ways.
                pass.once(format!("{name} {:?}", self.layout), |pass| {
                    let values = param.read();
                    floats(pass, &name, self.mat(&values, i), [self.inputs, self.outputs], storage)
                })
            }
        };
        let y = pass.graph.node("MatMul", &[x, &w], &[]);
        biased(pass, y, bias)
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
        let codes = own(&table.codes);
        Table { codes, scales: table.scales.as_ref().map(&mut own), offsets: table.offsets.as_ref().map(own) }
    }
}

/// y = x W + b with codes that this alone reads.
fn product(
    pass: &mut OnnxPass<'_>,
    form: Form,
    x: &Value,
    name: &str,
    codes: &Codes,
    bias: Option<(String, &[f32])>,
) -> Value {
    let table = match form {
        Form::Blocks(form) => blocks(pass, name, codes, form),
        _ => {
            let (inputs, outputs) = (codes.inputs(), codes.outputs());
            let stored = pass.once(name, |pass| {
                let mut turned = vec![0; inputs * outputs]; // [in, out]
                codes.each(|o, row| row.iter().enumerate().for_each(|(i, &code)| turned[i * outputs + o] = code));
                pass.graph.weight(name, Tensor::new(Kind::I8, &[inputs, outputs], turned))
            });
            sided(pass, name, stored, codes.sides(1), &[outputs])
        }
    };
    product_by(pass, form, x, codes, &table, bias)
}

/// y = x W + b with rows of tokens, which others read, too.
fn product_of(
    pass: &mut OnnxPass<'_>,
    form: Form,
    x: &Value,
    codes: &Codes,
    table: &Table,
    bias: Option<(String, &[f32])>,
) -> Value {
    let mut table = table.clone();
    if form == Form::Rows {
        table.codes = transposed(pass, &table.codes);
        table.scales = table.scales.map(|scales| pass.reshape(&scales, &[-1]));
        table.offsets = table.offsets.map(|offsets| pass.reshape(&offsets, &[-1]));
    }
    product_by(pass, form, x, codes, &table, bias)
}

fn product_by(
    pass: &mut OnnxPass<'_>,
    form: Form,
    x: &Value,
    codes: &Codes,
    table: &Table,
    bias: Option<(String, &[f32])>,
) -> Value {
    let scales = table.scales.as_ref().expect("codes have scales");
    let none = Value::NONE;
    let (y, sums, bias) = match form {
        Form::Blocks(Blocks { bits, block, accuracy }) => {
            let attributes = [
                ("K", (codes.inputs() as i64).into()),
                ("N", (codes.outputs() as i64).into()),
                ("bits", (bits as i64).into()),
                ("block_size", (block as i64).into()),
                ("accuracy_level", accuracy.into()),
            ];
            let y = pass.graph.contributed("MatMulNBits", &[x, &table.codes, scales], &attributes);
            (y, Some(block), bias)
        }
        _ if pass.is_uneven(x) => {
            let (rounded, row_scales) = rounded_rows(pass, x, codes.inputs());
            let (one, zero) = (pass.graph.float(1.0), pass.graph.byte(ZERO));
            let y = [&rounded, &table.codes, &one, scales, &zero];
            let y = pass.graph.contributed("MatMulIntegerToFloat", &y, &[]);
            let y = pass.graph.node("Mul", &[&y, &row_scales], &[]); // [B, T, N]
            (y, None, bias)
        }
        _ => {
            let bias = bias.map_or(none.clone(), |(name, values)| pass.constant(&name, &[values.len()], values));
            let inputs: &[&Value] = &[x, &table.codes, scales, &none, &bias];
            let inputs = if bias == none { &inputs[..3] } else { inputs };
            (pass.graph.contributed("DynamicQuantizeMatMul", inputs, &[]), None, None)
        }
    };
    let y = match &table.offsets {
        Some(offsets) => {
            let added = sums_of(pass, (x, codes.inputs()), sums, offsets);
            pass.graph.node("Add", &[&y, &added], &[])
        }
        None => y,
    };
    biased(pass, y, bias)
}

/// What offsets add: the sums of x over each group, or over whole rows, times these.
fn sums_of(pass: &mut OnnxPass<'_>, (x, inputs): (&Value, usize), block: Option<usize>, offsets: &Value) -> Value {
    let last = pass.graph.ints(&[-1]);
    let Some(block) = block else {
        let sums = pass.graph.node("ReduceSum", &[x, &last], &[("keepdims", 1.into())]);
        let sums = pass.reshape(&sums, EACH_ROW);
        return pass.graph.node("Mul", &[&sums, offsets], &[]); // [B, T, 1] times [N]
    };
    let sums = pass.once(format!("sums {x:?} {block}"), |pass| {
        let groups = (inputs / block) as i64;
        let x = pass.reshape(x, &[0, -1, groups, block as i64]);
        let sums = pass.graph.node("ReduceSum", &[&x, &last], &[("keepdims", 0.into())]);
        pass.reshape(&sums, &[0, -1, groups])
    });
    let offsets = transposed(pass, offsets);
    pass.graph.node("MatMul", &[&sums, &offsets], &[])
}

fn biased(pass: &mut OnnxPass<'_>, y: Value, bias: Option<(String, &[f32])>) -> Value {
    let Some((name, values)) = bias else { return y };
    let bias = pass.constant(&name, &[values.len()], values);
    pass.graph.node("Add", &[&y, &bias], &[])
}

/// x with each row rounded to 8 bits by a scale of its own, around [`ZERO`], and the scales, [B, T, 1].
fn rounded_rows(pass: &mut OnnxPass<'_>, x: &Value, width: usize) -> (Value, Value) {
    let scales = pass.once(format!("row scales {x:?}"), |pass| {
        let size = pass.graph.node("Abs", &[x], &[]);
        let last = pass.graph.ints(&[-1]);
        let most = pass.graph.node("ReduceMax", &[&size, &last], &[("keepdims", 1.into())]);
        let most = pass.reshape(&most, EACH_ROW);
        let (largest, tiny) = (pass.graph.float(1.0 / LARGEST), pass.graph.float(TINY));
        let scale = pass.graph.node("Mul", &[&most, &largest], &[]);
        pass.graph.node("Max", &[&scale, &tiny], &[])
    });
    let rounded = pass.once(format!("rounded {x:?}"), |pass| {
        let (flat, rows) = (pass.reshape(&scales, &[-1]), pass.reshape(x, &[-1, width as i64])); // [B * T]
        let zero = pass.graph.byte(ZERO);
        let shape = pass.graph.node("Shape", &[&flat], &[]);
        let zeros = pass.graph.node("Expand", &[&zero, &shape], &[]);
        let shape = pass.graph.node("Shape", &[x], &[]);
        let rounded = pass.graph.node("QuantizeLinear", &[&rows, &flat, &zeros], &[("axis", 0.into())]);
        pass.graph.node("Reshape", &[&rounded, &shape], &[("allowzero", 1.into())])
    });
    (rounded, scales)
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

/// Codes with their scales and offsets of a shape.
fn sided(
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
fn blocks(pass: &mut OnnxPass<'_>, name: &str, codes: &Codes, Blocks { bits, block, .. }: Blocks) -> Table {
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

fn transposed(pass: &mut OnnxPass<'_>, rows: &Value) -> Value {
    pass.once(format!("transposed {rows:?}"), |pass| {
        pass.graph.node("Transpose", &[rows], &[("perm", [1, 0][..].into())])
    })
}
