//! Parameters by name, their gradients, and how they are made.

use crate::linear::Layout;
use fnv::FnvHasher;
use lathe_ops::gemm::Mat;
use lathe_ops::integers::{Activations, Format, Integers};
use lathe_ops::storage::{F32, Storage};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::Hasher;
use std::sync::Arc;

/// A parameter: a named array of numbers.
#[derive(Clone)]
pub struct Param {
    /// Name in checkpoints, which is the reference implementation's.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its values, row-major; empty while they are held in their storage.
    pub data: Vec<f32>,
    /// What it is saved as, and held as where it is a matrix.
    storage: &'static dyn Storage,
    /// Its values in that storage, where they are held so.
    encoded: Vec<u8>,
    /// Its matrices as integers, where they are held so.
    integers: Vec<Arc<Integers>>,
    /// What activations are in products with integers.
    activations: Activations,
    /// How matrices lie in it: whoever reads them can read other storages than f32. Vectors are always held as f32.
    matrix: Option<Place>,
}

/// How the matrices of a parameter lie in it: one, or several of the same shape one after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// How many there are.
    pub count: usize,
    /// Inputs of each.
    pub inputs: usize,
    /// Outputs of each.
    pub outputs: usize,
    /// How each lies.
    pub layout: Layout,
    /// Whether it is never held as integers: it decides rather than computes, as the gate of experts does, or it is read both
    /// ways, as a projection that embedding and output share.
    pub exact: bool,
}

impl Place {
    /// Matrix i of a parameter's values as [outputs, inputs].
    pub fn mat<'a>(&self, values: &'a [f32], i: usize) -> Mat<'a> {
        let size = self.inputs * self.outputs;
        let values = &values[i * size..][..size];
        match self.layout {
            Layout::InOut => Mat::new(values, self.inputs, self.outputs).t(),
            Layout::OutIn => Mat::new(values, self.outputs, self.inputs),
        }
    }

    /// The values of a parameter out of those of its matrices as [outputs, inputs].
    pub fn values(&self, matrices: impl IntoIterator<Item = Vec<f32>>) -> Vec<f32> {
        let mut values = Vec::with_capacity(self.count * self.inputs * self.outputs);
        for matrix in matrices {
            match self.layout {
                Layout::OutIn => values.extend_from_slice(&matrix),
                Layout::InOut => {
                    let column = |i: usize| matrix[i..].iter().step_by(self.inputs);
                    (0..self.inputs).for_each(|i| values.extend(column(i)));
                }
            }
        }
        values
    }
}

impl std::fmt::Debug for Param {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} {}", self.name, self.shape, self.storage_key())
    }
}

impl Param {
    /// How many numbers it has.
    pub fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// What it is saved as, where that is no integers.
    pub fn storage(&self) -> &'static dyn Storage {
        self.storage
    }

    /// The name of what it is saved as.
    pub fn storage_key(&self) -> String {
        self.integers.first().map_or_else(|| self.storage.key().into(), |integers| integers.format().key())
    }

    /// How matrices lie in it, if it is one that can be held in any storage.
    pub fn place(&self) -> Option<Place> {
        self.matrix
    }

    /// Its matrices as integers, where they are held so.
    pub fn integers(&self) -> &[Arc<Integers>] {
        &self.integers
    }

    /// What activations are in products with its integers.
    pub fn activations(&self) -> Activations {
        self.activations
    }

    /// Says what activations are in products with its integers.
    pub fn set_activations(&mut self, activations: Activations) {
        self.activations = activations;
    }

    /// Rounds its matrices to integers, and holds them so. Vectors, and matrices that have to be exact, stay as they are.
    pub fn set_format(&mut self, format: Format) {
        let Some(place) = self.matrix.filter(|place| !place.exact) else { return };
        let values = self.read();
        let integers = (0..place.count).map(|i| Integers::quantize(format, place.mat(&values, i))).collect();
        drop(values);
        self.set_integers(integers);
    }

    /// Takes its matrices as integers.
    pub fn set_integers(&mut self, integers: Vec<Integers>) {
        let place = self.matrix.expect("only matrices are held as integers");
        assert_eq!(integers.len(), place.count, "{}: as many matrices as it has", self.name);
        for matrix in &integers {
            let shape = (matrix.outputs(), matrix.inputs());
            assert_eq!(shape, (place.outputs, place.inputs), "{}: the shape of its matrices", self.name);
        }
        (self.data, self.encoded, self.storage) = (Vec::new(), Vec::new(), &F32);
        self.integers = integers.into_iter().map(Arc::new).collect();
    }

    /// Its values, however they are held.
    pub fn read(&self) -> Cow<'_, [f32]> {
        if let (Some(place), false) = (self.matrix, self.integers.is_empty()) {
            return Cow::Owned(place.values(self.integers.iter().map(|matrix| matrix.read())));
        }
        if self.encoded.is_empty() {
            return Cow::Borrowed(&self.data);
        }
        let mut values = vec![0.0; self.count()];
        self.storage.decode(&self.encoded, &mut values);
        Cow::Owned(values)
    }

    /// Rounds its values to those of a storage, and holds them so where that is possible.
    pub fn set_storage(&mut self, storage: &'static dyn Storage) {
        if storage.key() == self.storage.key() && self.integers.is_empty() {
            return;
        }
        let encoded = storage.encode(&self.read());
        self.fill(storage, encoded);
    }

    /// Takes values in a storage.
    pub fn fill(&mut self, storage: &'static dyn Storage, encoded: Vec<u8>) {
        assert_eq!(encoded.len(), storage.bytes(self.count()), "{}: as many bytes as its shape needs", self.name);
        (self.storage, self.integers) = (storage, Vec::new());
        if self.matrix.is_some() && storage.key() != F32.key() {
            (self.data, self.encoded) = (Vec::new(), encoded);
            return;
        }
        let mut values = vec![0.0; self.count()];
        storage.decode(&encoded, &mut values);
        (self.data, self.encoded) = (values, Vec::new());
    }

    /// Takes values as f32.
    pub fn set_data(&mut self, data: Vec<f32>) {
        assert_eq!(data.len(), self.count(), "{}: as many values as its shape needs", self.name);
        (self.data, self.encoded, self.storage, self.integers) = (data, Vec::new(), &F32, Vec::new());
    }

    /// Bytes that its values take where it is saved.
    pub fn bytes(&self) -> usize {
        match &*self.integers {
            [] => self.storage.bytes(self.count()),
            integers => integers.iter().map(|matrix| matrix.format().bytes(matrix.outputs(), matrix.inputs())).sum(),
        }
    }
}

/// Which parameter of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ParamId(pub(crate) usize);

/// Sees what enters products with weights, for statistics of activations.
pub trait Observer: Send + Sync {
    /// The rows that are multiplied with a matrix of a parameter. A parameter whose outputs are computed in parts shows
    /// its rows once.
    fn inputs(&self, weight: ParamId, matrix: usize, x: Mat<'_>);
}

/// All parameters of a network, in the order in which they were made.
#[derive(Default)]
pub struct Params {
    list: Vec<Param>,
    /// Grows whenever values may have changed.
    version: u64,
    observer: Option<Arc<dyn Observer>>,
}

impl Params {
    /// The values of a parameter that is held as f32, which vectors always are.
    pub fn get(&self, id: ParamId) -> &[f32] {
        self.floats(id).expect("a parameter that is held as f32")
    }

    /// The values of a parameter, where it is held as f32.
    pub fn floats(&self, id: ParamId) -> Option<&[f32]> {
        let param = &self.list[id.0];
        (param.encoded.is_empty() && param.integers.is_empty()).then_some(&*param.data)
    }

    /// A parameter.
    pub fn param(&self, id: ParamId) -> &Param {
        &self.list[id.0]
    }

    /// The rows of a matrix of a width that begin with `first`, however it is held.
    pub fn read_rows(&self, id: ParamId, width: usize, first: usize, count: usize) -> Cow<'_, [f32]> {
        let range = first * width..(first + count) * width;
        let param = &self.list[id.0];
        if let [integers] = &*param.integers {
            let mut values = vec![0.0; range.len()];
            values.chunks_exact_mut(width).enumerate().for_each(|(i, row)| integers.row(first + i, row));
            return Cow::Owned(values);
        }
        if param.encoded.is_empty() {
            return Cow::Borrowed(&param.data[range]);
        }
        let mut values = vec![0.0; range.len()];
        let bytes = |values: usize| param.storage.bytes(values);
        param.storage.decode(&param.encoded[bytes(range.start)..bytes(range.end)], &mut values);
        Cow::Owned(values)
    }

    /// Shows an observer what enters a product.
    pub(crate) fn observe(&self, weight: ParamId, matrix: usize, x: Mat<'_>) {
        if let Some(observer) = &self.observer {
            observer.inputs(weight, matrix, x);
        }
    }

    /// Who sees what enters products from here on.
    pub(crate) fn set_observer(&mut self, observer: Option<Arc<dyn Observer>>) {
        self.observer = observer;
    }

    /// Where a parameter stands among all.
    pub fn position(&self, id: ParamId) -> usize {
        id.0
    }

    /// Says which parameters are matrices, which can be held in any storage.
    pub(crate) fn set_matrices(&mut self, matrices: impl IntoIterator<Item = (ParamId, Place)>) {
        for (id, place) in matrices {
            let known = &mut self.list[id.0].matrix;
            let both_ways = known.is_some_and(|known| known.layout != place.layout || known.exact);
            *known = Some(Place { exact: place.exact || both_ways, ..place });
        }
    }

    /// The values of a parameter, however it is held.
    pub fn read(&self, id: ParamId) -> Cow<'_, [f32]> {
        self.list[id.0].read()
    }

    /// Gives the memory of a parameter back; its values are gone, but for integers, which products read as they are.
    pub(crate) fn forget(&mut self, id: ParamId) {
        self.list[id.0].data = Vec::new();
        self.list[id.0].encoded = Vec::new();
    }

    /// All of them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Param> {
        self.list.iter()
    }

    /// All of them, to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Param> {
        self.version += 1;
        self.list.iter_mut()
    }

    /// Which values these are: different ones have different versions.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// How many numbers there are.
    pub fn count(&self) -> usize {
        self.list.iter().map(Param::count).sum()
    }
}

/// A gradient per parameter.
#[derive(Debug)]
pub struct Grads {
    list: Vec<Vec<f32>>,
    /// Whether the gradient holds anything yet; what does not is overwritten.
    started: Vec<bool>,
    /// Lengths of the parameters, where nobody wants their gradients.
    unwanted: Option<Vec<usize>>,
}

impl Grads {
    /// Gradients for these parameters, all 0.
    pub fn new(params: &Params) -> Self {
        Self {
            list: params.iter().map(|param| vec![0.0; param.count()]).collect(),
            started: vec![true; params.list.len()],
            unwanted: None,
        }
    }

    /// Gradients that nobody wants: a backward pass with these gives gradients of activations, and those of matrices,
    /// which would cost as much again, are not computed.
    pub fn unwanted(params: &Params) -> Self {
        Self {
            list: vec![Vec::new(); params.list.len()],
            started: vec![true; params.list.len()],
            unwanted: Some(params.iter().map(Param::count).collect()),
        }
    }

    /// Whether anybody wants them.
    pub fn wanted(&self) -> bool {
        self.unwanted.is_none()
    }

    /// Which parameters a backward pass has reached since [`Self::clear`].
    pub fn reached(&self) -> &[bool] {
        &self.started
    }

    /// The gradients as they are; those that nothing reached hold anything.
    pub fn as_reached(&mut self) -> &mut [Vec<f32>] {
        &mut self.list
    }

    /// Forgets all gradients; they count as 0.
    pub fn clear(&mut self) {
        self.started.fill(false);
    }

    /// The gradients in the order of the parameters. Those that nothing reached are 0.
    pub fn finish(&mut self) -> &mut [Vec<f32>] {
        for (grad, started) in self.list.iter_mut().zip(&mut self.started) {
            if !std::mem::replace(started, true) {
                grad.fill(0.0);
            }
        }
        &mut self.list
    }

    /// The gradient of a parameter, to be added to.
    pub fn add(&mut self, id: ParamId) -> &mut [f32] {
        // A place for the small gradients that operators give in any case.
        if let (Some(lens), true) = (&self.unwanted, self.list[id.0].is_empty()) {
            self.list[id.0] = vec![0.0; lens[id.0]];
        }
        if !std::mem::replace(&mut self.started[id.0], true) {
            self.list[id.0].fill(0.0);
        }
        &mut self.list[id.0]
    }

    /// Two gradients at once, to be added to.
    pub fn add_two(&mut self, a: ParamId, b: ParamId) -> [&mut [f32]; 2] {
        self.add(a);
        self.add(b);
        let [a, b] = self.list.get_disjoint_mut([a.0, b.0]).expect("two parameters");
        [a, b]
    }

    /// The gradient of a parameter, and whether to add to what is there or to overwrite it.
    pub fn start(&mut self, id: ParamId) -> (&mut [f32], bool) {
        let started = std::mem::replace(&mut self.started[id.0], true);
        (&mut self.list[id.0], started)
    }
}

/// How the values of a parameter begin.
#[derive(Debug, Clone, Copy)]
pub enum Init {
    /// All the same.
    Constant(f32),
    /// Normal with mean and deviation.
    Normal(f32, f32),
}

/// Makes parameters under a prefix of names.
pub struct Builder {
    params: Params,
    ids: HashMap<String, ParamId>,
    /// `None`: parameters have shapes but no values.
    seed: Option<u64>,
    /// Values repeat after a while, which is all that a measurement needs and much sooner done.
    repeating: bool,
    /// Whether layers that ask for a parameter of a name that exists share it.
    sharing: bool,
}

impl Builder {
    /// Begins with no parameters.
    pub fn new(seed: u64) -> Self {
        Self { params: Params::default(), ids: HashMap::new(), seed: Some(seed), repeating: false, sharing: false }
    }

    /// Makes parameters whose values repeat after a while: for measurements.
    pub fn repeating(seed: u64) -> Self {
        Self { repeating: true, ..Self::new(seed) }
    }

    /// Makes parameters without values, which come from a file.
    pub fn unfilled() -> Self {
        Self { params: Params::default(), ids: HashMap::new(), seed: None, repeating: false, sharing: false }
    }

    /// Lets layers share parameters: one that is asked for by the name of another is that one.
    pub fn share(&mut self) {
        self.sharing = true;
    }

    /// A parameter. Its values depend on the seed and its name alone.
    pub fn param(&mut self, name: impl Into<String>, shape: &[usize], init: Init) -> ParamId {
        let name = name.into();
        if let (true, Some(&id)) = (self.sharing, self.ids.get(&name)) {
            assert_eq!(self.params.list[id.0].shape, shape, "two shapes of the parameter {name}");
            return id;
        }
        let len = shape.iter().product();
        let data = match (self.seed, init) {
            (None, _) => Vec::new(),
            (_, Init::Constant(value)) => vec![value; len],
            (Some(seed), Init::Normal(mean, deviation)) if self.repeating => {
                let some = normal(seed, &name, len.min(PERIOD), mean, deviation);
                let mut data = Vec::with_capacity(len);
                while data.len() < len {
                    data.extend_from_slice(&some[..some.len().min(len - data.len())]);
                }
                data
            }
            (Some(seed), Init::Normal(mean, deviation)) => normal(seed, &name, len, mean, deviation),
        };
        let id = ParamId(self.params.list.len());
        assert!(self.ids.insert(name.clone(), id).is_none(), "two parameters of the name {name}");
        let shape = shape.to_vec();
        self.params.list.push(Param {
            name,
            shape,
            data,
            storage: &F32,
            encoded: Vec::new(),
            integers: Vec::new(),
            activations: Activations::Int8,
            matrix: None,
        });
        id
    }

    /// Which parameter has a name.
    pub fn find(&self, name: &str) -> Option<ParamId> {
        self.ids.get(name).copied()
    }

    /// How many were made so far.
    pub fn count(&self) -> usize {
        self.params.list.len()
    }

    /// All that were made.
    pub fn finish(self) -> Params {
        self.params
    }
}

/// Values of a repeating parameter before they repeat; odd, so that no two rows are the same.
const PERIOD: usize = (1 << 16) - 1;

/// Normal numbers from a generator of their own (Box and Muller), in pieces that threads share.
fn normal(seed: u64, name: &str, len: usize, mean: f32, deviation: f32) -> Vec<f32> {
    const PIECE: usize = 1 << 14;
    /// 32-bit words that a piece takes from the generator: two 64-bit numbers for two normal ones.
    const WORDS: u128 = 2 * PIECE as u128;
    // Each parameter has its own stream.
    let mut stream = FnvHasher::default();
    stream.write(name.as_bytes());
    let stream = stream.finish();
    let mut out = vec![0.0; len];
    out.par_chunks_mut(PIECE).enumerate().for_each(|(piece, out)| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        rng.set_word_pos(piece as u128 * WORDS);
        for pair in out.chunks_mut(2) {
            let (u, v): (f64, f64) = (1.0 - rng.random::<f64>(), rng.random());
            let (radius, angle) = ((-2.0 * u.ln()).sqrt(), std::f64::consts::TAU * v);
            let both = [radius * angle.cos(), radius * angle.sin()];
            pair.iter_mut().zip(both).for_each(|(x, normal)| *x = mean + deviation * normal as f32);
        }
    });
    out
}
