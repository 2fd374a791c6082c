//! A graph at work: each operator as ONNX defines it, by plain loops over f32.

mod array;
mod elementwise;
mod indices;
mod movement;
mod products;
mod rows;

pub use array::Array;

use crate::graph::{Attr, Node};
use crate::tensor::Tensor;
use crate::{Error, Model, Result};
use array::Data;
use std::collections::HashMap;
use std::rc::Rc;

/// What operators that round activations to integers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounding {
    /// They round, as they do in use.
    Nearest,
    /// They do not: their integers are real numbers, and what is left to see is the weights.
    None,
}

/// Why an operator cannot be computed.
type Reason = String;

impl Model {
    /// The outputs for some inputs, in the order of [`crate::Graph::outputs`].
    pub fn run(&self, inputs: &[(&str, Array)], rounding: Rounding) -> Result<Vec<Array>> {
        let graph = &self.graph;
        // Values are dropped after their last use.
        let mut uses: HashMap<&str, usize> = HashMap::new();
        for name in graph.nodes.iter().flat_map(|node| &node.inputs) {
            *uses.entry(name).or_default() += 1;
        }
        graph.outputs.iter().for_each(|port| *uses.entry(&port.name).or_default() += 1);
        let weights: HashMap<&str, &Tensor> = graph.weights.iter().map(|(name, tensor)| (&**name, tensor)).collect();
        let mut known: HashMap<&str, Rc<Array>> =
            inputs.iter().map(|(name, array)| (*name, Rc::new(array.clone()))).collect();
        for node in &graph.nodes {
            let failed = |reason: Reason| {
                let first = node.outputs.first().map_or("", String::as_str);
                Error::Node { node: format!("{} {first}", node.op), reason }
            };
            let mut taken = Vec::new();
            for name in &node.inputs {
                if name.is_empty() {
                    taken.push(None);
                    continue;
                }
                if !known.contains_key(&**name)
                    && let Some(tensor) = weights.get(&**name)
                {
                    known.insert(name, Rc::new(Array::of(tensor)));
                }
                let array = known.get(&**name).ok_or_else(|| failed(format!("there is no value `{name}`")))?;
                taken.push(Some(array.clone()));
            }
            for name in &node.inputs {
                let left = uses.get_mut(&**name).map(|left| {
                    *left -= 1;
                    *left
                });
                if left == Some(0) {
                    known.remove(&**name);
                }
            }
            let call = Call { node, inputs: taken, rounding };
            let given = call.run().map_err(failed)?;
            if given.len() != node.outputs.len() {
                return Err(failed(format!("{} outputs; it gives {}", node.outputs.len(), given.len())));
            }
            known.extend(node.outputs.iter().map(|name| &**name).zip(given.into_iter().map(Rc::new)));
        }
        let output = |name: &str| {
            let missing = || Error::Node { node: name.into(), reason: "no node gives this output".into() };
            known.get(name).map(|array| (**array).clone()).ok_or_else(missing)
        };
        graph.outputs.iter().map(|port| output(&port.name)).collect()
    }
}

/// An operator with what it is given.
struct Call<'a> {
    node: &'a Node,
    inputs: Vec<Option<Rc<Array>>>,
    rounding: Rounding,
}

impl Call<'_> {
    /// An input that may be left out.
    fn optional(&self, i: usize) -> Option<&Array> {
        self.inputs.get(i)?.as_deref()
    }

    fn input(&self, i: usize) -> Result<&Array, Reason> {
        self.optional(i).ok_or_else(|| format!("input {i} is missing"))
    }

    /// An input of floats.
    fn floats(&self, i: usize) -> Result<&[f32], Reason> {
        self.input(i)?.floats().ok_or_else(|| format!("input {i} are no floats"))
    }

    /// An input of whole numbers.
    fn ints(&self, i: usize) -> Result<&[i64], Reason> {
        self.input(i)?.ints().ok_or_else(|| format!("input {i} are no whole numbers"))
    }

    fn attribute(&self, name: &str) -> Option<&Attr> {
        self.node.attributes.iter().find(|(known, _)| known == name).map(|(_, attr)| attr)
    }

    /// A whole number of its attributes.
    fn int(&self, name: &str, missing: i64) -> i64 {
        match self.attribute(name) {
            Some(Attr::Int(value)) => *value,
            _ => missing,
        }
    }

    /// An axis of its attributes, for a rank.
    fn axis(&self, missing: i64, rank: usize) -> Result<usize, Reason> {
        place(self.int("axis", missing), rank)
    }

    fn run(&self) -> Result<Vec<Array>, Reason> {
        let given = match &*self.node.op {
            "Abs" => self.map(f32::abs),
            "Cos" => self.map(f32::cos),
            "Relu" => self.map(|x| x.max(0.0)),
            "Sigmoid" => self.map(|x| 1.0 / (1.0 + (-x).exp())),
            "Sin" => self.map(f32::sin),
            "Sqrt" => self.map(f32::sqrt),
            "Tanh" => self.map(f32::tanh),
            "Gelu" => self.gelu(),
            "Add" => self.both(|a, b| a + b, i64::wrapping_add),
            "Div" => self.both(|a, b| a / b, |a, b| a.checked_div(b).unwrap_or_default()),
            "Max" => self.both(f32::max, i64::max),
            "Min" => self.both(f32::min, i64::min),
            "Mul" => self.both(|a, b| a * b, i64::wrapping_mul),
            "Pow" => self.both(f32::powf, |a, b| a.wrapping_pow(b as u32)),
            "Sub" => self.both(|a, b| a - b, i64::wrapping_sub),
            "And" => self.both(|_, _| f32::NAN, |a, b| a & b),
            "BitwiseAnd" => self.bytes(|a, b| a & b),
            "BitShift" => self.bytes(|a, b| a.checked_shr(b.into()).unwrap_or_default()),
            "Equal" => self.compare(|a, b| a == b, |a, b| a == b),
            "GreaterOrEqual" => self.compare(|a, b| a >= b, |a, b| a >= b),
            "Less" => self.compare(|a, b| a < b, |a, b| a < b),
            "LessOrEqual" => self.compare(|a, b| a <= b, |a, b| a <= b),
            "Where" => self.choose(),
            "Cast" => self.cast(),
            "Concat" => self.concat(),
            "Expand" => self.expand(),
            "Identity" => Ok(self.input(0)?.clone()),
            "Range" => self.range(),
            "Reshape" => self.reshape(),
            "Shape" => self.shape(),
            "Slice" => self.slice(),
            "Squeeze" => self.squeeze(),
            "Transpose" => self.transpose(),
            "Unsqueeze" => self.unsqueeze(),
            "Gather" => self.gather(),
            "NonZero" => self.non_zero(),
            "ScatterND" => self.scatter(),
            "ReduceMax" => self.reduce(|row| row.iter().copied().fold(f32::NEG_INFINITY, f32::max)),
            "ReduceMean" => self.reduce(|row| row.iter().sum::<f32>() / row.len() as f32),
            "ReduceSum" => self.reduce(|row| row.iter().sum()),
            "LayerNormalization" => self.layer_norm(),
            "LogSoftmax" => self.softmax(true),
            "Softmax" => self.softmax(false),
            "MatMul" => self.matmul(),
            "DynamicQuantizeMatMul" => self.dynamic_matmul(),
            "MatMulIntegerToFloat" => self.matmul_integer_scaled(),
            "MatMulNBits" => self.matmul_bits(),
            "RotaryEmbedding" => self.rotary(),
            "QuantizeLinear" => self.quantize(),
            "Split" => return self.split(),
            "TopK" => return self.top_k(),
            _ => Err("this operator is not known here".into()),
        };
        given.map(|array| vec![array])
    }
}

/// An axis, counted from the end where it is negative.
fn place(axis: i64, rank: usize) -> Result<usize, Reason> {
    let at = if axis < 0 { axis + rank as i64 } else { axis };
    usize::try_from(at).ok().filter(|&at| at < rank).ok_or_else(|| format!("axis {axis} of {rank}"))
}
