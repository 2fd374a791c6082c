//! GGUF files: every type of tensor has the values of the gguf package, models compute what transformers computes from the
//! same files (`oracles/gguf_models.py`), and files that are damaged, cut off or absurd are errors.

use lathe_gguf::{Array, Gguf, TYPES, TensorData, TensorType, Value, is_gguf};
use lathe_model::folder::{self, FolderError, TensorFile};
use lathe_model::{Input, Network, REGISTRY};
use lathe_ops::integers::Activations;
use lathe_ops::storage::F32;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const MODELS: [&str; 5] = ["llama", "llama_untied", "qwen2", "qwen3", "gpt2"];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/gguf").join(name)
}

/// A file taken apart, to be changed.
struct Parts {
    keys: BTreeMap<String, Value>,
    tensors: BTreeMap<String, (Vec<usize>, &'static TensorType, Vec<u8>)>,
}

impl Parts {
    fn of(name: &str) -> Self {
        let mut file = Gguf::open(&fixture(name)).unwrap();
        let keys = file.keys().map(|(key, value)| (key.to_string(), value.clone())).collect();
        let infos: Vec<_> = file.tensors().map(|(name, info)| (name.to_string(), info.clone())).collect();
        let tensors = infos.into_iter().map(|(name, info)| {
            let bytes = file.bytes(&name).unwrap();
            (name, (info.shape, info.kind, bytes))
        });
        Self { keys, tensors: tensors.collect() }
    }

    fn bytes(&self) -> Vec<u8> {
        let keys: Vec<_> = self.keys.iter().map(|(key, value)| (&**key, value)).collect();
        let tensors: Vec<TensorData<'_>> =
            self.tensors.iter().map(|(name, (shape, kind, bytes))| TensorData { name, shape, kind, bytes }).collect();
        let mut out = Vec::new();
        lathe_gguf::write(&mut out, &keys, &tensors).unwrap();
        out
    }

    fn set(mut self, key: &str, value: Value) -> Self {
        self.keys.insert(key.into(), value);
        self
    }

    fn load(&self) -> Result<Network, FolderError> {
        load(&self.bytes())
    }
}

fn load(bytes: &[u8]) -> Result<Network, FolderError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    std::fs::write(&path, bytes).unwrap();
    folder::load(&path, &REGISTRY)
}

fn error(found: Result<Network, FolderError>) -> String {
    let error = match found {
        Ok(network) => panic!("it loads: {:?}", network.model.frame),
        Err(error) => error.to_string(),
    };
    let (_, rest) = error.split_once("model.gguf").unwrap_or_else(|| panic!("{error}: names the file"));
    rest.trim_start_matches([':', ',', ' ']).to_string()
}

#[test]
fn every_type_has_the_values_of_the_reference() {
    let mut file = Gguf::open(&fixture("types.gguf")).unwrap();
    let mut expected = TensorFile::open(&fixture("types.safetensors")).unwrap();
    assert_eq!(file.tensors().count(), TYPES.len());
    for kind in TYPES {
        let info = file.tensor(kind.name).unwrap();
        assert_eq!((&*info.shape, info.kind), (&[3, 256][..], kind));
        let values = expected.floats(kind.name, &[3, 256]).unwrap();
        assert_eq!(file.values(kind.name).unwrap(), values, "{}", kind.name);
    }
}

/// With weights and activations in f32, as transformers has them; and as they are held, with activations of 8 bits.
#[test]
fn models_compute_what_transformers_computes() {
    for name in MODELS {
        let path = fixture(&format!("{name}.gguf"));
        assert!(is_gguf(&path) && folder::has_weights(&path) && folder::is_model_folder(&path));
        let mut network = folder::load(&path, &REGISTRY).unwrap_or_else(|error| panic!("{error}"));
        let mut expected = TensorFile::open(&fixture(&format!("{name}.safetensors"))).unwrap();
        let ([batch, len], ids) = expected.ints("ids", "[B, T]").unwrap();
        let logits = expected.floats("logits", &[batch, len, network.model.frame.vocab as usize]).unwrap();
        let ids: Vec<u32> = ids.iter().map(|&id| id as u32).collect();
        let worst = |network: &Network| {
            let found = network.logits(&Input::tokens(&ids, batch), &mut network.init_memory(batch));
            found.iter().zip(&logits).fold(0.0f32, |worst, (a, b)| worst.max((a - b).abs()))
        };
        let rounded = worst(&network);
        network.params_mut().for_each(|param| param.set_activations(Activations::Float));
        let float = worst(&network);
        network.set_storage(&F32);
        let exact = worst(&network);
        // Scales of the types named `_K` were rounded to f16.
        let most = if name == "llama" { 3e-3 } else { 5e-6 };
        assert!(exact < most && float < most + 1e-5, "{name}: {exact} {float}");
        // Logits are up to 2.
        assert!(rounded > exact && rounded < 0.1, "{name}: {rounded}");
    }
}

/// The models of the files, as model files say them.
#[test]
fn keys_say_what_the_model_is() {
    let model = |name: &str| folder::load_model(&fixture(&format!("{name}.gguf")), &REGISTRY).unwrap();
    let llama = "backbone='llama'\nlayers='(sf)x3'\nd_model=32\nvocab=400\nheads=4\nkv_heads=2\nd_head=8\ninner=256\n\
                 max_len=64";
    assert_eq!(model("llama"), crate::model(llama));
    let untied = "backbone='llama'\nlayers='(sf)x1'\nd_model=32\nvocab=96\nheads=2\nkv_heads=1\nd_head=16\ninner=64\n\
                  max_len=64\ntie_embeddings=false\nqkv_bias=true\nout_bias=true\nrope_theta=50\nrope_scaling='llama3'\n\
                  rope_factor=8\nrope_original_max_len=48";
    assert_eq!(model("llama_untied"), crate::model(untied));
    let qwen3 = "backbone='llama'\nlayers='(sf)x1'\nd_model=32\nvocab=96\nheads=2\nkv_heads=1\nd_head=12\ninner=64\n\
                 max_len=64\ntie_embeddings=false\nhead_norm=true\nrope_theta=1000000\nnorm_eps=1e-6";
    assert_eq!(model("qwen3"), crate::model(qwen3));
    let gpt2 = "backbone='gpt2'\nlayers='(sf)x2'\nd_model=32\nvocab=321\nheads=4\ninner=128\nmax_len=48";
    assert_eq!(model("gpt2"), crate::model(gpt2));
    let linear = Parts::of("qwen2.gguf")
        .set("qwen2.rope.scaling.type", Value::Text("linear".into()))
        .set("qwen2.rope.scaling.factor", Value::F32(2.5))
        .set("qwen2.attention.head_count_kv", Value::Array(Array::I32(vec![2])));
    let frame = linear.load().unwrap().model.frame;
    assert_eq!((frame.word("rope_scaling"), frame.real("rope_factor")), (Some("linear"), Some(2.5)));
    assert_eq!((frame.int("kv_heads"), frame.flag("qkv_bias"), frame.flag("out_bias")), (Some(2), true, false));
}

/// Floats stay what they are; quantised weights have the codes and scales of the file.
#[test]
fn weights_are_held_as_the_file_has_them() {
    let path = fixture("llama.gguf");
    let network = folder::load(&path, &REGISTRY).unwrap();
    let param = |name: &str| network.params().iter().find(|param| param.name == name).unwrap();
    for (name, key, theirs) in [
        ("embed_tokens", "int8_g32", "token_embd"),
        ("layers.0.self_attn.v_proj", "int6_g32", "blk.0.attn_v"),
        ("layers.0.self_attn.o_proj", "int6_g32_offset", "blk.0.attn_output"),
        ("layers.0.mlp.up_proj", "int4_g32", "blk.0.ffn_up"),
        ("layers.0.mlp.down_proj", "int4_g32_offset", "blk.0.ffn_down"),
        ("layers.1.mlp.gate_proj", "int4_g32_offset", "blk.1.ffn_gate"),
        ("layers.1.mlp.down_proj", "int6_g32_offset", "blk.1.ffn_down"),
        ("layers.2.self_attn.v_proj", "bf16", "blk.2.attn_v"),
        ("layers.2.mlp.down_proj", "int6_g16", "blk.2.ffn_down"),
        ("layers.1.self_attn.o_proj", "f32", "blk.1.attn_output"),
    ] {
        let param = param(&format!("model.{name}.weight"));
        assert_eq!(param.storage_key(), key, "{name}");
        let mut file = Gguf::open(&path).unwrap();
        let theirs = format!("{theirs}.weight");
        let rounded = file.tensor(&theirs).unwrap().kind.name.ends_with("_K");
        let values = file.values(&theirs).unwrap();
        for (ours, theirs) in param.read().iter().zip(&values) {
            match rounded {
                true => assert!((ours - theirs).abs() < 1e-3 * theirs.abs().max(0.1), "{name}: {ours} {theirs}"),
                false => assert_eq!(ours, theirs, "{name}"),
            }
        }
    }
    assert_eq!(param("model.layers.2.self_attn.k_proj.weight").storage_key(), "f16");
    // Matrices of GPT-2 are transposed, whatever holds them.
    let gpt2 = folder::load(&fixture("gpt2.gguf"), &REGISTRY).unwrap();
    let param = gpt2.params().iter().find(|param| param.name == "transformer.h.0.attn.c_attn.weight").unwrap();
    let values = Gguf::open(&fixture("gpt2.gguf")).unwrap().values("blk.0.attn_qkv.weight").unwrap();
    let ours = param.read();
    assert_eq!((param.storage_key(), &*param.shape), ("int4_g32".into(), &[32, 96][..]));
    assert!((0..32 * 96).all(|i| ours[i] == values[i % 96 * 32 + i / 96]));
    // And a folder that is saved from it holds the same.
    let dir = tempfile::tempdir().unwrap();
    folder::save(&network, dir.path()).unwrap();
    let again = folder::load(dir.path(), &REGISTRY).unwrap();
    assert_eq!(again.model, network.model);
    for (a, b) in again.params().iter().zip(network.params().iter()) {
        assert_eq!(a.read(), b.read(), "{}", a.name);
    }
}

#[test]
fn what_is_written_is_read() {
    for name in MODELS {
        let path = fixture(&format!("{name}.gguf"));
        let parts = Parts::of(&format!("{name}.gguf"));
        let dir = tempfile::tempdir().unwrap();
        let copy = dir.path().join("a.gguf");
        std::fs::write(&copy, parts.bytes()).unwrap();
        let (mut a, mut b) = (Gguf::open(&path).unwrap(), Gguf::open(&copy).unwrap());
        assert!(a.keys().eq(b.keys()), "{name}");
        for tensor in parts.tensors.keys() {
            assert_eq!(a.tensor(tensor).unwrap().shape, b.tensor(tensor).unwrap().shape);
            assert_eq!(a.bytes(tensor).unwrap(), b.bytes(tensor).unwrap(), "{name} {tensor}");
        }
    }
    let values = vec![
        Value::U8(1),
        Value::I8(-1),
        Value::U16(2),
        Value::I16(-2),
        Value::U32(3),
        Value::I32(-3),
        Value::F32(0.5),
        Value::U64(u64::MAX),
        Value::I64(-4),
        Value::F64(0.25),
        Value::Bool(true),
        Value::Text("é".into()),
        Value::Array(Array::Bool(vec![true, false])),
        Value::Array(Array::F64(vec![1.0])),
        Value::Array(Array::Text(vec!["a".into(), String::new()])),
        Value::Array(Array::U8(vec![])),
    ]; // fmt: skip
    let names: Vec<String> = (0..values.len()).map(|i| format!("{i:02}")).collect();
    let keys: Vec<_> = names.iter().map(String::as_str).zip(&values).collect();
    let mut bytes = Vec::new();
    lathe_gguf::write(&mut bytes, &keys, &[]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("no name that tells");
    std::fs::write(&path, bytes).unwrap();
    assert!(is_gguf(&path) && !is_gguf(dir.path()) && !is_gguf(&dir.path().join("none")));
    assert!(Gguf::open(&path).unwrap().keys().eq(keys.iter().copied()));
}

#[test]
fn what_is_not_computed_here_is_an_error() {
    let llama = || Parts::of("llama_untied.gguf");
    let text = |text: &str| Value::Text(text.into());
    for (key, value, expected) in [
        (
            "general.architecture",
            text("bloom"),
            "general.architecture: found `bloom`; expected gpt2, llama, qwen2, qwen3",
        ),
        ("llama.expert_count", Value::U32(8), "llama.expert_count: found `8`; expected 0"),
        ("llama.attention.sliding_window", Value::U32(16), "llama.attention.sliding_window: found `16`; expected 0"),
        ("llama.attention.causal", Value::Bool(false), "llama.attention.causal: found `false`; expected true"),
        ("llama.attention.value_length", Value::U32(8), "llama.attention.value_length: found `8`; expected 16"),
        ("llama.rope.dimension_count", Value::U32(8), "llama.rope.dimension_count: found `8`; expected 16"),
        ("llama.rope.scaling.type", text("yarn"), "llama.rope.scaling.type: found \"yarn\"; expected none or linear"),
        (
            "llama.rope.freq_base",
            Value::F32(1e4),
            "rope_freqs.weight: found factors that are not Llama 3.1's; expected",
        ),
        ("llama.rope.freq_base", Value::F32(f32::NAN), "llama.rope.freq_base: found"),
        ("llama.attention.layer_norm_rms_epsilon", Value::F32(-1.0), "llama.attention.layer_norm_rms_epsilon: found"),
        ("llama.block_count", Value::U32(0), "llama.block_count: found `0`; expected a whole number from 1 to"),
        ("llama.block_count", Value::U64(u64::MAX), "llama.block_count: found"),
        ("llama.block_count", text("two"), "llama.block_count: found `\"two\"`; expected a whole number from 1 to"),
        ("llama.block_count", Value::U32(2), "tensor `blk.1.attn_"),
        ("llama.embedding_length", Value::U32(1 << 30), "llama.embedding_length: found"),
        (
            "llama.embedding_length",
            Value::U32(64),
            "tensor `token_embd.weight` has the shape [96, 32]; expected [96, 64]",
        ),
        ("llama.feed_forward_length", Value::U32(96), "tensor `blk.0.ffn_"),
        ("llama.attention.head_count", Value::U32(0), "llama.attention.head_count: found"),
        ("llama.attention.head_count", Value::U32(3), "tensor `blk.0.attn_"),
        ("llama.attention.head_count_kv", Value::Array(Array::U32(vec![1, 2])), "llama.attention.head_count_kv: found"),
        ("split.count", Value::U16(3), "split.count: found one of 3 files; expected a model in one file"),
    ] {
        let mut parts = llama();
        parts.keys.insert(key.into(), value);
        let found = error(parts.load());
        assert!(found.starts_with(expected), "{key}: {found}");
    }
    for key in ["llama.block_count", "llama.context_length", "llama.attention.layer_norm_rms_epsilon"] {
        let mut parts = llama();
        parts.keys.remove(key);
        assert_eq!(error(parts.load()), format!("{key}: found nothing; expected a value"));
    }
    let gpt2 = Parts::of("gpt2.gguf").set("gpt2.attention.layer_norm_epsilon", Value::F32(1e-6));
    let found = error(gpt2.load());
    assert!(found.starts_with("gpt2.attention.layer_norm_epsilon: found `1e-6`; expected 0.00001"), "{found}");
    let gpt2 = Parts::of("gpt2.gguf").set("gpt2.attention.head_count", Value::U32(5));
    assert!(error(gpt2.load()).starts_with("gpt2.attention.head_count: found 5; expected a divisor of the width"));
}

#[test]
fn tensors_are_those_of_the_model() {
    let mut parts = Parts::of("llama_untied.gguf");
    let (name, norm) = ("blk.0.attn_norm.weight", parts.tensors["blk.0.attn_norm.weight"].clone());
    parts.tensors.remove(name);
    assert_eq!(error(parts.load()), "tensor `blk.0.attn_norm.weight` is missing; expected [32]");
    parts.tensors.insert(name.into(), norm.clone());
    parts.tensors.insert("blk.0.other".into(), norm.clone());
    let expected = "found tensor `blk.0.other`, F32 [32]; expected only those of the model";
    assert_eq!(error(parts.load()), expected);
    parts.tensors.remove("blk.0.other");

    let (shape, kind, mut bytes) = norm;
    bytes[8..12].copy_from_slice(&f32::INFINITY.to_le_bytes());
    parts.tensors.insert(name.into(), (shape, kind, bytes));
    assert_eq!(error(parts.load()), format!("tensor `{name}`, index 2: found inf; expected a finite number"));
    // A scale of a quantised block, here the second of the tensor.
    let mut parts = Parts::of("llama_untied.gguf");
    parts.tensors.get_mut("blk.0.ffn_up.weight").unwrap().2[18..20].copy_from_slice(&0x7e00u16.to_le_bytes());
    assert_eq!(error(parts.load()), "tensor `blk.0.ffn_up.weight`, index 32: found NaN; expected a finite number");
    parts.tensors.remove("token_embd.weight");
    assert_eq!(error(parts.load()), "token_embd.weight: found nothing; expected a row for each token");
}

/// A header by hand: how many tensors and keys it says, and then anything.
fn header(tensors: u64, keys: u64, rest: &[&[u8]]) -> Vec<u8> {
    let mut bytes = b"GGUF\x03\x00\x00\x00".to_vec();
    bytes.extend([tensors, keys].iter().flat_map(|count| count.to_le_bytes()));
    bytes.extend(rest.concat());
    bytes.resize(bytes.len() + 64, 0);
    bytes
}

#[test]
fn absurd_headers_are_errors() {
    let huge = u64::MAX.to_le_bytes();
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let key = |kind: u32, rest: &[u8]| [&text("k")[..], &kind.to_le_bytes(), rest].concat();
    let tensor = |dims: &[u64], kind: u32, offset: u64| {
        let mut bytes = [&text("t")[..], &(dims.len() as u32).to_le_bytes()].concat();
        bytes.extend(dims.iter().flat_map(|size| size.to_le_bytes()));
        bytes.extend(kind.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        bytes
    };
    let all: Vec<u64> = vec![1; 5];
    for (bytes, expected) in [
        (b"GGUF".to_vec(), "the beginning: found the end after 4 bytes; expected 4 more; the file may be cut off"),
        (b"PK\x03\x04....".to_vec(), "the beginning: found \"PK\\x03\\x04\"; expected \"GGUF\""),
        (b"GGUF\x01\x00\x00\x00".to_vec(), "the beginning: found version 1; expected version 2 or 3"),
        (b"GGUF\x00\x00\x00\x03".to_vec(), "the beginning: found version 50331648, in big-endian order; expected"),
        (header(u64::MAX, 0, &[]), "the beginning: found 18446744073709551615 tensors; expected at most 3, for which"),
        (header(0, u64::MAX, &[]), "the beginning: found 18446744073709551615 keys; expected at most 4, for which"),
        (header(0, 1, &[&huge]), "key 1 of 1: found 18446744073709551615 bytes of a string; expected at most 64"),
        (
            header(0, 1, &[&text("\n")[..], &13u32.to_le_bytes()]),
            "key `\\n`: found a value of type 13; expected a type",
        ),
        (
            header(0, 1, &[&1u64.to_le_bytes(), b"\xff"]),
            "key 1 of 1: found bytes that are not UTF-8; expected a string",
        ),
        (header(0, 1, &[&key(8, &huge)]), "key `k`: found 18446744073709551615 bytes of a string; expected at most 64"),
        (header(0, 1, &[&key(7, &[2])]), "key `k`: found 2 for a truth; expected 0 or 1"),
        (header(0, 1, &[&key(9, &9u32.to_le_bytes())]), "key `k`: found a list of type 9; expected a list of numbers"),
        (header(0, 1, &[&key(9, &4u32.to_le_bytes()), &huge]), "key `k`: found 18446744073709551615 values of a list"),
        (header(0, 1, &[&key(9, &8u32.to_le_bytes()), &huge]), "key `k`: found 18446744073709551615 values of a list"),
        (header(0, 2, &[&key(0, &[1]), &key(0, &[1])]), "key `k`: found it twice; expected every key once"),
        (header(1, 0, &[&tensor(&[], 0, 0)]), "tensor `t`: found 0 dimensions; expected 1 to 4"),
        (header(1, 0, &[&tensor(&all, 0, 0)]), "tensor `t`: found 5 dimensions; expected 1 to 4"),
        (header(1, 0, &[&tensor(&[0, 4], 0, 0)]), "tensor `t`: found the shape [4, 0]; expected sizes above 0"),
        (
            header(1, 0, &[&tensor(&[1 << 40, 1 << 40], 0, 0)]),
            "tensor `t`: found the shape [1099511627776, 1099511627776]",
        ),
        (header(1, 0, &[&tensor(&[u64::MAX], 0, 0)]), "tensor `t`: found the shape [18446744073709551615]; expected"),
        (header(1, 0, &[&tensor(&[4], 11, 0)]), "tensor `t`: found type 11, Q3_K; expected F32, F16, BF16, Q8_0, Q4_0"),
        (header(1, 0, &[&tensor(&[4], 99, 0)]), "tensor `t`: found type 99; expected F32"),
        (
            header(1, 0, &[&tensor(&[48], 8, 0)]),
            "tensor `t`: found rows of 48; expected a multiple of 32, the values of",
        ),
        (header(1, 0, &[&tensor(&[4], 0, 7)]), "tensor `t`: found the offset 7; expected a multiple of 32"),
        (
            header(1, 0, &[&tensor(&[4], 0, 1 << 40)]),
            "tensor `t`: found 16 bytes from byte 1099511627776 of the values on",
        ),
        (header(1, 0, &[&tensor(&[4], 0, u64::MAX - 31)]), "tensor `t`: found 16 bytes from byte 18446744073709551584"),
        (header(1, 0, &[&tensor(&[1 << 30], 0, 0)]), "tensor `t`: found 4294967296 bytes from byte 0 of the values on"),
        (
            header(2, 0, &[&tensor(&[4], 0, 0), &tensor(&[4], 0, 0)]),
            "tensor `t`: found it twice; expected every tensor",
        ),
        (header(0, 0, &[]), "general.architecture: found `nothing`; expected gpt2, llama, qwen2, qwen3"),
    ] {
        let found = error(load(&bytes));
        assert!(found.starts_with(expected), "{found}\n{expected}");
    }
    let alignment = |value: Value| {
        let mut bytes = Vec::new();
        lathe_gguf::write(&mut bytes, &[("general.alignmenT", &value)], &[]).unwrap();
        let at = bytes.iter().position(|&byte| byte == b'T').unwrap();
        bytes[at] = b't';
        error(load(&bytes))
    };
    for value in [Value::U32(0), Value::U32(33), Value::I32(-32), Value::Text("32".into()), Value::U64(1 << 40)] {
        let found = alignment(value);
        assert!(found.starts_with("key `general.alignment`: found ") && found.contains("a power of 2"), "{found}");
    }
}

/// Two tensors at the same place, and the values of the last cut off.
#[test]
fn tensors_lie_apart_and_inside() {
    let bytes = Parts::of("qwen2.gguf").bytes();
    let at = |name: &str| {
        let at = bytes.windows(name.len()).position(|found| found == name.as_bytes()).unwrap() + name.len();
        at + 4 + 8 + 4 // a vector's dimensions, its size and its type
    };
    let mut twice = bytes.clone();
    let (from, to) = (at("blk.0.attn_norm.weight"), at("output_norm.weight"));
    twice.copy_within(from..from + 8, to);
    let found = error(load(&twice));
    assert!(found.ends_with("found values that are another tensor's too; expected values of its own"), "{found}");
    let cut = bytes.len() - 64;
    let found = error(load(&bytes[..cut]));
    assert!(found.contains("all that there are; the file may be cut off"), "{found}");
}

/// Whatever the file, it loads or is an error.
#[test]
fn damaged_files_never_panic() {
    let whole = std::fs::read(fixture("llama_untied.gguf")).unwrap();
    let start = whole.windows(4).rposition(|found| found == b"blk.").unwrap() + 64; // the end of the header, about
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let mut loaded = 0;
    let cases = crate::cases(600);
    for i in 0..cases {
        let mut bytes = whole.clone();
        for _ in 0..rng.random_range(1..4) {
            let at = rng.random_range(0..start);
            match rng.random_range(0..6) {
                0 => bytes.truncate(at.max(1)),
                1 => bytes.iter_mut().skip(at).take(8).for_each(|byte| *byte = 0xff),
                2 => bytes.iter_mut().skip(at).take(8).for_each(|byte| *byte = 0),
                3 => drop(bytes.drain(at.min(bytes.len())..(at + 3).min(bytes.len()))),
                _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = rng.random()),
            }
        }
        std::fs::write(&path, &bytes).unwrap();
        match folder::load(&path, &REGISTRY) {
            Ok(_) => loaded += 1,
            Err(error) => assert!(error.to_string().contains("model.gguf"), "{i}: {error}"),
        }
    }
    // A wrong number here and there, such as the longest context, goes unnoticed; most do not.
    assert!(loaded > 0 && loaded < cases / 2, "{loaded} of {cases}");
    // Cut off anywhere.
    for end in (0..whole.len()).step_by(97) {
        std::fs::write(&path, &whole[..end]).unwrap();
        assert!(folder::load(&path, &REGISTRY).is_err(), "{end}");
    }
}
