//! Products with weight matrices as nodes of ONNX, in the form that ONNX Runtime runs fastest for each storage:
//!
//! | storage | product |
//! |---|---|
//! | f32; f16 and bf16, which become f32 when the file is loaded | MatMul |
//! | int8 and int6 with a scale for each row | DynamicQuantizeMatMul |
//! | int8 and int6 in groups | MatMulNBits of 8 bits, accuracy level 4 |
//! | int4 | MatMulNBits of 4 bits, accuracy level 4; 1 where activations stay as they are |
//! | int8 and int6 where activations stay as they are | MatMul of f32 |
//!
//! Codes and scales are those of the model. Offsets become a small product of their own: with the sums of x over each
//! group. Matrices with the same input are one product, so that it is rounded once.
//!
//! DynamicQuantizeMatMul rounds x by one scale for all rows. That does no harm after a norm or attention, but rows of what
//! leaves a non-linearity are too different: there each is divided by its largest size first, and the product multiplied by it.

mod stored;

pub(crate) use stored::token_rows;

use super::{Experts, Linear, Matrix};
use crate::onnx::{OnnxPass, Table};
use crate::params::{ParamId, Params};
use lathe_onnx::{Kind, Tensor, Value};
use lathe_ops::integers::{Activations, Integers};
use lathe_ops::storage::{F32, Storage};
use std::ops::Range;
use std::sync::Arc;
use stored::{Codes, blocks, floats, sided};

/// Less than any size of a row that counts: rows of zeros have none.
const TINY: f32 = 1e-30;
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
            let (even, sizes) = evened_rows(pass, x);
            let y = pass.graph.contributed("DynamicQuantizeMatMul", &[&even, &table.codes, scales], &[]);
            let y = pass.graph.node("Mul", &[&y, &sizes], &[]); // [B, T, N]
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

/// x with each row divided by its largest size, so that one scale fits all of them, and these sizes, [B, T, 1].
fn evened_rows(pass: &mut OnnxPass<'_>, x: &Value) -> (Value, Value) {
    let sizes = pass.once(format!("row sizes {x:?}"), |pass| {
        let size = pass.graph.node("Abs", &[x], &[]);
        let last = pass.graph.ints(&[-1]);
        let most = pass.graph.node("ReduceMax", &[&size, &last], &[("keepdims", 1.into())]);
        let (most, tiny) = (pass.reshape(&most, EACH_ROW), pass.graph.float(TINY));
        pass.graph.node("Max", &[&most, &tiny], &[])
    });
    let even = pass.once(format!("even {x:?}"), |pass| pass.graph.node("Div", &[x, &sizes], &[]));
    (even, sizes)
}

fn transposed(pass: &mut OnnxPass<'_>, rows: &Value) -> Value {
    pass.once(format!("transposed {rows:?}"), |pass| {
        pass.graph.node("Transpose", &[rows], &[("perm", [1, 0][..].into())])
    })
}
