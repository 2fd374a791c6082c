//! Parameters by name, their gradients, and how they are made.

use fnv::FnvHasher;
use lathe_ops::storage::{F32, Storage};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::Hasher;

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
    /// Whether whoever reads it can read other storages than f32: vectors are always held as f32.
    matrix: bool,
}

impl std::fmt::Debug for Param {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} {}", self.name, self.shape, self.storage.key())
    }
}

impl Param {
    /// How many numbers it has.
    pub fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// What it is saved as.
    pub fn storage(&self) -> &'static dyn Storage {
        self.storage
    }

    /// Its values, however they are held.
    pub fn read(&self) -> Cow<'_, [f32]> {
        if self.encoded.is_empty() {
            return Cow::Borrowed(&self.data);
        }
        let mut values = vec![0.0; self.count()];
        self.storage.decode(&self.encoded, &mut values);
        Cow::Owned(values)
    }

    /// Rounds its values to those of a storage, and holds them so where that is possible.
    pub fn set_storage(&mut self, storage: &'static dyn Storage) {
        if storage.key() == self.storage.key() {
            return;
        }
        let encoded = storage.encode(&self.read());
        self.fill(storage, encoded);
    }

    /// Takes values in a storage.
    pub fn fill(&mut self, storage: &'static dyn Storage, encoded: Vec<u8>) {
        assert_eq!(encoded.len(), storage.bytes(self.count()), "{}: as many bytes as its shape needs", self.name);
        self.storage = storage;
        if self.matrix && storage.key() != F32.key() {
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
        (self.data, self.encoded, self.storage) = (data, Vec::new(), &F32);
    }

    /// Bytes that its values take where it is saved.
    pub fn bytes(&self) -> usize {
        self.storage.bytes(self.count())
    }
}

/// Which parameter of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ParamId(pub(crate) usize);

/// All parameters of a network, in the order in which they were made.
#[derive(Debug, Default)]
pub struct Params {
    list: Vec<Param>,
    /// Grows whenever values may have changed.
    version: u64,
}

impl Params {
    /// The values of a parameter that is held as f32, which vectors always are.
    pub fn get(&self, id: ParamId) -> &[f32] {
        self.floats(id).expect("a parameter that is held as f32")
    }

    /// The values of a parameter, where it is held as f32.
    pub fn floats(&self, id: ParamId) -> Option<&[f32]> {
        let param = &self.list[id.0];
        param.encoded.is_empty().then_some(&*param.data)
    }

    /// The rows of a matrix of a width that begin with `first`, however it is held.
    pub fn read_rows(&self, id: ParamId, width: usize, first: usize, count: usize) -> Cow<'_, [f32]> {
        let range = first * width..(first + count) * width;
        let param = &self.list[id.0];
        if param.encoded.is_empty() {
            return Cow::Borrowed(&param.data[range]);
        }
        let mut values = vec![0.0; range.len()];
        let bytes = |values: usize| param.storage.bytes(values);
        param.storage.decode(&param.encoded[bytes(range.start)..bytes(range.end)], &mut values);
        Cow::Owned(values)
    }

    /// Where a parameter stands among all.
    pub fn position(&self, id: ParamId) -> usize {
        id.0
    }

    /// Says which parameters are matrices, which can be held in any storage.
    pub(crate) fn set_matrices(&mut self, ids: impl IntoIterator<Item = ParamId>) {
        ids.into_iter().for_each(|id| self.list[id.0].matrix = true);
    }

    /// The values of a parameter, however it is held.
    pub fn read(&self, id: ParamId) -> Cow<'_, [f32]> {
        self.list[id.0].read()
    }

    /// Gives the memory of a parameter back; its values are gone.
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
        self.params.list.push(Param { name, shape, data, storage: &F32, encoded: Vec::new(), matrix: false });
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
