//! A network as a GGUF file. Each matrix is written as what it is stored as, or as a type that is asked for; vectors are
//! always f32.
//!
//! | storage | type |
//! |---|---|
//! | f32, f16, bf16 | the same |
//! | int8, int6 with a scale for 32 inputs or more | Q8_0, the same codes |
//! | int4 with a scale for 32 inputs or more | Q4_0, with offsets Q4_1, the same codes |
//! | other integers | Q8_0, rounded once more |
//!
//! Blocks of such a type have 32 inputs; a matrix with another number of them becomes F16.

use super::{GgufTensor, LARGEST, Order, decode};
use crate::folder::{FolderError, write_aside};
use crate::{Network, Param, build};
use lathe_gguf::{Form, TensorHeader, TensorType, Value};
use lathe_ops::integers::Integers;
use std::borrow::Cow;
use std::cell::RefCell;
use std::path::Path;

/// Inputs of a block of integers.
const BLOCK: usize = 32;
/// Tensors that need more bits than others: they read and write tokens.
const TOKENS: [&str; 2] = ["token_embd.weight", "output.weight"];

/// Which tensor a parameter is, by its name.
pub type Places = Box<dyn Fn(&str) -> Option<GgufTensor>>;

/// How a model stands in a file.
pub struct GgufModel {
    /// `general.architecture`
    pub architecture: &'static str,
    /// Keys, without the architecture that stands before each.
    pub keys: Vec<(&'static str, Value)>,
    /// Which tensor a parameter is.
    pub place: Places,
    /// Tensors that no parameter is: name, shape, values.
    pub more: Vec<(String, Vec<usize>, Vec<f32>)>,
}

/// What a GGUF file is written with.
#[derive(Default)]
pub struct GgufOptions {
    /// What matrices are written as; `None` for what fits their storage.
    pub kind: Option<&'static TensorType>,
    /// Keys besides those of the model: its name, its tokenizer.
    pub keys: Vec<(String, Value)>,
}

/// Writes a network as a file, which must not exist. Afterwards the network has the weights of the file: rounded, where its
/// types are.
pub fn save_gguf(network: &mut Network, path: &Path, options: &GgufOptions) -> Result<(), FolderError> {
    let refused = |reason: String| FolderError::Refused { format: "a GGUF file", reason };
    let form = build::of_backbone(network.model.frame.backbone).gguf();
    let Some(form) = form else {
        let reason = format!("llama.cpp has no architecture for backbone {}", network.model.frame.backbone.key());
        return Err(refused(reason));
    };
    let model = form.write(&network.model).map_err(refused)?;
    let mut places = Vec::new();
    for param in network.params().iter() {
        let place = (model.place)(&param.name);
        places.push(place.ok_or_else(|| refused(format!("llama.cpp has no place for `{}`", param.name)))?);
    }

    let mut headers = Vec::new();
    for (param, place) in network.params().iter().zip(&places) {
        let mut shape = param.shape.clone();
        if place.order == Order::Transposed {
            shape.reverse();
        }
        headers.push(TensorHeader { name: place.name.clone(), kind: kind_of(param, place, options.kind), shape });
    }
    let f32 = named("F32");
    let more = model.more.iter();
    headers.extend(more.map(|(name, shape, _)| TensorHeader { name: name.clone(), shape: shape.clone(), kind: f32 }));

    let own = model.keys.iter().map(|(key, value)| (format!("{}.{key}", model.architecture), value.clone()));
    let mut keys = vec![
        (super::ARCHITECTURE.to_string(), Value::Text(model.architecture.into())),
        ("general.quantization_version".into(), Value::U32(2)),
        ("general.file_type".into(), Value::U32(file_type(&headers))),
    ];
    keys.extend(own.chain(options.keys.iter().cloned()));
    let keys: Vec<(&str, &Value)> = keys.iter().map(|(key, value)| (&**key, value)).collect();

    let params = RefCell::new(network.params_mut().collect::<Vec<_>>());
    write_aside(path, |out| {
        lathe_gguf::write_with(out, &keys, &headers, &mut |i| {
            let mut params = params.borrow_mut();
            match params.get_mut(i) {
                Some(param) => Cow::Owned(write_param(param, headers[i].kind, places[i].order)),
                None => Cow::Owned(f32.encode(&model.more[i - places.len()].2).expect("F32 is written")),
            }
        })
    })
}

fn named(name: &str) -> &'static TensorType {
    TensorType::named(name).expect("a type that there is")
}

/// What most files of a kind call themselves: that of the largest tensor.
fn file_type(headers: &[TensorHeader]) -> u32 {
    let largest = headers.iter().max_by_key(|header| header.shape.iter().product::<usize>());
    match largest.map_or("F32", |header| header.kind.name) {
        "F16" => 1,
        "Q4_0" => 2,
        "Q4_1" => 3,
        "Q8_0" => 7,
        "BF16" => 32,
        _ => 0,
    }
}

/// The type of a parameter's tensor.
fn kind_of(param: &Param, place: &GgufTensor, asked: Option<&'static TensorType>) -> &'static TensorType {
    let Some(matrix) = param.place() else { return named("F32") };
    let blocks = |kind: &'static TensorType| match matrix.inputs.is_multiple_of(kind.values) {
        true => kind,
        false => named("F16"),
    };
    match (asked, param.integers()) {
        (Some(kind), _) if kind.name == "Q4_0" && TOKENS.contains(&&*place.name) => blocks(named("Q8_0")),
        (Some(kind), _) => blocks(kind),
        (None, [integers]) => blocks(fitting(integers).unwrap_or_else(|| named("Q8_0"))),
        (None, _) => named(param.storage().dtype()),
    }
}

/// The type that has the codes of integers, if there is one.
fn fitting(integers: &Integers) -> Option<&'static TensorType> {
    let format = integers.format();
    let sides = [integers.scales(), integers.offsets()].concat();
    if format.group().is_some_and(|group| group < BLOCK) || sides.iter().any(|side| side.abs() > LARGEST) {
        return None;
    }
    match (format.bits(), format.offset()) {
        (8 | 6, false) => Some(named("Q8_0")),
        (4, false) => Some(named("Q4_0")),
        (4, true) => Some(named("Q4_1")),
        _ => None,
    }
}

/// The bytes of a parameter's tensor. The parameter gets the values that these have.
fn write_param(param: &mut Param, kind: &'static TensorType, order: Order) -> Vec<u8> {
    let codes = match (&kind.form, param.integers()) {
        (Form::Groups(_), [integers]) if fitting(integers) == Some(kind) => Some(codes_of(integers, kind, order)),
        _ => None,
    };
    let width = if param.shape.len() > 1 { param.shape[1] } else { 1 };
    let bytes = codes.unwrap_or_else(|| {
        let values = order.apply(param.read().into_owned(), width);
        kind.encode(&values).expect("a type that is written")
    });
    let of_file = if order == Order::Transposed { param.shape[0] } else { width };
    param.set_data(order.undo(decode(kind, &bytes, param.count()), of_file));
    bytes
}

/// The blocks of a matrix of integers: its own codes, and a scale for each 32 of them.
fn codes_of(integers: &Integers, kind: &TensorType, order: Order) -> Vec<u8> {
    let (format, inputs) = (integers.format(), integers.inputs());
    let Form::Groups(groups) = &kind.form else { unreachable!("codes are of groups") };
    let shift = if groups.symmetric { (1 << (groups.bits - 1)) - format.middle() } else { 0 };
    let (scales, offsets) = (integers.scales(), integers.offsets());
    let row_sides = format.groups(inputs);
    let group = format.group().unwrap_or(usize::MAX);
    let mut bytes = Vec::with_capacity(kind.bytes_of(integers.outputs() * inputs));
    let mut row = vec![0; inputs];
    for output in order.apply((0..integers.outputs()).collect(), 1) {
        integers.codes(output, &mut row);
        for (block, codes) in row.as_chunks::<BLOCK>().0.iter().enumerate() {
            let side = output * row_sides + block * BLOCK / group;
            let codes = codes.map(|code| code + shift);
            let offset = offsets.get(side).copied().unwrap_or_default();
            kind.pack(&codes, scales[side], offset, &mut bytes).expect("a type that is written");
        }
    }
    bytes
}
