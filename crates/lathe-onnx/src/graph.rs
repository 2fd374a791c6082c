//! A graph, built node by node: what each node gives is a [`Value`], which others take.

use crate::tensor::{Kind, Tensor};
use std::collections::HashMap;

/// A number of a node's attributes.
#[derive(Debug, Clone, PartialEq)]
pub enum Attr {
    /// A whole number.
    Int(i64),
    /// Several.
    Ints(Vec<i64>),
    /// A number.
    Float(f32),
    /// A word.
    Text(String),
}

impl From<i64> for Attr {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<&[i64]> for Attr {
    fn from(values: &[i64]) -> Self {
        Self::Ints(values.to_vec())
    }
}

impl From<f32> for Attr {
    fn from(value: f32) -> Self {
        Self::Float(value)
    }
}

impl From<&str> for Attr {
    fn from(value: &str) -> Self {
        Self::Text(value.into())
    }
}

/// What an input, a weight or a node gives: its name in the graph.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Value(pub(crate) String);

impl Value {
    /// An input that is left out.
    pub const NONE: Self = Self(String::new());
}

/// A size along an axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dim {
    /// Always the same.
    Fixed(usize),
    /// Another for each run, by name.
    Named(String),
}

impl From<usize> for Dim {
    fn from(size: usize) -> Self {
        Self::Fixed(size)
    }
}

impl From<&str> for Dim {
    fn from(name: &str) -> Self {
        Self::Named(name.into())
    }
}

/// An input or an output.
#[derive(Debug, Clone, PartialEq)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// The type of its numbers.
    pub kind: Kind,
    /// Its shape.
    pub shape: Vec<Dim>,
}

/// An operator at work.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The operator.
    pub op: String,
    /// Whose it is: empty for ONNX's own.
    pub domain: String,
    /// Names of what it takes; an empty one is left out.
    pub inputs: Vec<String>,
    /// Names of what it gives.
    pub outputs: Vec<String>,
    /// Its attributes.
    pub attributes: Vec<(String, Attr)>,
}

/// Operators of ONNX Runtime that are in no standard.
pub(crate) const CONTRIBUTED: &str = "com.microsoft";

/// A graph under construction.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Graph {
    /// What it takes.
    pub inputs: Vec<Port>,
    /// What it gives.
    pub outputs: Vec<Port>,
    /// In the order of the computation.
    pub nodes: Vec<Node>,
    /// Weights and constants by name.
    pub weights: Vec<(String, Tensor)>,
    pub(crate) scope: String,
    /// How many values there are of each name.
    pub(crate) counts: HashMap<String, usize>,
    /// Small constants that are there already.
    pub(crate) constants: HashMap<Vec<i64>, Value>,
}

impl Graph {
    /// Names what is added from here on after a part of the model.
    pub fn enter(&mut self, scope: impl Into<String>) {
        self.scope = scope.into();
    }

    fn name(&mut self, what: &str) -> String {
        self.unused(if self.scope.is_empty() { what.to_string() } else { format!("{}/{what}", self.scope) })
    }

    fn unused(&mut self, name: String) -> String {
        let count = self.counts.entry(name.clone()).or_default();
        *count += 1;
        if *count == 1 { name } else { format!("{name}_{}", *count - 1) }
    }

    /// An input.
    pub fn input(&mut self, name: &str, kind: Kind, shape: &[Dim]) -> Value {
        self.inputs.push(Port { name: name.into(), kind, shape: shape.into() });
        Value(name.into())
    }

    /// Says that a value is an output of a name.
    pub fn output(&mut self, name: &str, value: &Value, kind: Kind, shape: &[Dim]) {
        self.outputs.push(Port { name: name.into(), kind, shape: shape.into() });
        let (op, domain) = ("Identity".into(), String::new());
        let (inputs, outputs) = (vec![value.0.clone()], vec![name.into()]);
        self.nodes.push(Node { op, domain, inputs, outputs, attributes: Vec::new() });
    }

    /// A weight by its name, with a number behind it where there is one of that name already.
    pub fn weight(&mut self, name: &str, tensor: Tensor) -> Value {
        let name = self.unused(name.into());
        self.weights.push((name.clone(), tensor));
        Value(name)
    }

    /// Numbers, by a name that is made here.
    pub fn numbers(&mut self, what: &str, tensor: Tensor) -> Value {
        let name = self.name(what);
        self.weights.push((name.clone(), tensor));
        Value(name)
    }

    fn constant(&mut self, key: Vec<i64>, tensor: impl FnOnce() -> Tensor) -> Value {
        if let Some(known) = self.constants.get(&key) {
            return known.clone();
        }
        let value = self.weight(&format!("constant_{}", self.constants.len()), tensor());
        self.constants.insert(key, value.clone());
        value
    }

    /// A list of whole numbers.
    pub fn ints(&mut self, values: &[i64]) -> Value {
        let key = [&[0, values.len() as i64], values].concat();
        self.constant(key, || Tensor::ints(values))
    }

    /// A whole number.
    pub fn int(&mut self, value: i64) -> Value {
        self.constant(vec![1, value], || Tensor::new(Kind::I64, &[], value.to_le_bytes().to_vec()))
    }

    /// A whole number of 8 bits.
    pub fn byte(&mut self, value: u8) -> Value {
        self.constant(vec![2, value.into()], || Tensor::new(Kind::U8, &[], vec![value]))
    }

    /// A number.
    pub fn float(&mut self, value: f32) -> Value {
        self.constant(vec![3, value.to_bits().into()], || Tensor::floats(&[], &[value]))
    }

    /// What an operator of ONNX gives.
    pub fn node(&mut self, op: &str, inputs: &[&Value], attributes: &[(&str, Attr)]) -> Value {
        self.nodes_of("", op, inputs, 1, attributes).remove(0)
    }

    /// What an operator with several outputs gives.
    pub fn several(&mut self, op: &str, inputs: &[&Value], outputs: usize, attributes: &[(&str, Attr)]) -> Vec<Value> {
        self.nodes_of("", op, inputs, outputs, attributes)
    }

    /// What an operator of ONNX Runtime gives.
    pub fn contributed(&mut self, op: &str, inputs: &[&Value], attributes: &[(&str, Attr)]) -> Value {
        self.nodes_of(CONTRIBUTED, op, inputs, 1, attributes).remove(0)
    }

    fn nodes_of(
        &mut self,
        domain: &str,
        op: &str,
        inputs: &[&Value],
        outputs: usize,
        attributes: &[(&str, Attr)],
    ) -> Vec<Value> {
        let outputs: Vec<String> = (0..outputs).map(|_| self.name(op)).collect();
        self.nodes.push(Node {
            op: op.into(),
            domain: domain.into(),
            inputs: inputs.iter().map(|value| value.0.clone()).collect(),
            outputs: outputs.clone(),
            attributes: attributes.iter().map(|(name, attr)| (name.to_string(), attr.clone())).collect(),
        });
        outputs.into_iter().map(Value).collect()
    }
}
