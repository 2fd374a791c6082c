//! Llama in GGUF files, and Qwen2 and Qwen3; stacks whose layers differ are llama.cpp's `deci`. Rows of queries and keys of
//! Llama and `deci` stand there in the order of the original weights, in which rotary positions turn neighbours; those of
//! the others stand as in transformers.

mod stack;
mod write;

use super::{frame, tensor};
use crate::folder::{ConfigReader, GgufForm, GgufModel, GgufTensor, Json, Order};
use lathe_core::model::Value;
use lathe_core::{Activation, Error, Model, Result};
use lathe_gguf::Gguf;
use lathe_ops::rope::{Rope, Scaling};
use serde_json::json;

pub(in crate::backbones) struct Llama;

/// Those that turn neighbours: with equal layers, and with layers that differ.
const EQUAL: &str = "llama";
const STACK: &str = "deci";
/// What frequencies of rotary positions are divided by.
const FACTORS: &str = "rope_freqs.weight";

const WHOLES: &[(&str, &str)] =
    &[("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"), ("lm_head", "output")];
const PARTS: &[(&str, &str)] = &[
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

impl GgufForm for Llama {
    fn architectures(&self) -> &'static [&'static str] {
        &[EQUAL, "qwen2", "qwen3", STACK]
    }

    fn read(&self, architecture: &str, file: &mut Gguf, reader: &mut ConfigReader<'_>) -> Result<()> {
        let key = |name: &str| format!("{architecture}.{name}");
        match architecture {
            STACK => stack::read(file, reader)?,
            _ => frame(architecture, file, reader)?,
        }
        let eps = key("attention.layer_norm_rms_epsilon");
        reader.need(&[&eps])?;
        reader.copy(&[(&key("rope.freq_base"), "rope_theta", "10000")])?;
        reader.copy_if_set(&[(&eps, "norm_eps"), (&key("attention.key_length"), "d_head")])?;
        if architecture != STACK {
            reader.copy_if_set(&[(&key("attention.head_count_kv"), "kv_heads")])?;
        }
        reader.set("activation", Value::Word(Activation::Swiglu.name().into()));
        let has = |part: &str| {
            Value::Flag(
                file.tensors().any(|(name, _)| name.strip_prefix("blk.").is_some_and(|name| name.ends_with(part))),
            )
        };
        reader.set("qkv_bias", has(".attn_q.bias"));
        reader.set("out_bias", has(".attn_output.bias"));
        reader.set("head_norm", has(".attn_q_norm.weight"));

        reader.only(&[
            (&key("attention.causal"), json!(true)),
            (&key("attention.sliding_window"), json!(0)),
            (&key("expert_count"), json!(0)),
        ])?;
        let width = width(architecture, file)
            .ok_or_else(|| Error::value(key("attention.head_count"), "heads of no width", "a divisor of the width"))?;
        for name in ["attention.key_length", "attention.value_length", "rope.dimension_count"] {
            reader.only(&[(&key(name), json!(width))])?;
        }
        scaling(&key("rope.scaling"), reader)?;
        match file.tensor(FACTORS).is_some() {
            true => factors(width, file, reader),
            false => Ok(()),
        }
    }

    fn tensor(&self, param: &str, file: &Gguf) -> Option<GgufTensor> {
        let architecture = file.get("general.architecture").and_then(lathe_gguf::Value::text).unwrap_or_default();
        place(param, architecture, width(architecture, file)?)
    }

    fn write(&self, model: &Model) -> Result<GgufModel, String> {
        write::model(model)
    }

    fn is_needless(&self, tensor: &str) -> bool {
        tensor == FACTORS
    }
}

/// Which tensor a parameter is, with heads of a width.
fn place(param: &str, architecture: &str, width: usize) -> Option<GgufTensor> {
    let name = tensor(param, "model.layers.", WHOLES, PARTS)?;
    let turned = [".attn_q.", ".attn_k."].iter().any(|part| name.contains(part));
    let order = match turned && [EQUAL, STACK].contains(&architecture) {
        true => Order::Pairs(width),
        false => Order::Same,
    };
    Some(GgufTensor { name, order })
}

/// K, as the file says it: the width of a head, or that of the model over the heads of the first layer.
fn width(architecture: &str, file: &Gguf) -> Option<usize> {
    let get = |name: &str| {
        let value = file.get(&format!("{architecture}.{name}"))?;
        let first = value.array().and_then(|list| list.get(0)).unwrap_or_else(|| value.clone());
        first.int().and_then(|size| usize::try_from(size).ok())
    };
    get("attention.key_length").or_else(|| get("embedding_length")?.checked_div(get("attention.head_count")?))
}

/// Rotary positions stretched by a key.
fn scaling(key: &str, reader: &mut ConfigReader<'_>) -> Result<()> {
    let (kind, factor) = (format!("{key}.type"), format!("{key}.factor"));
    match reader.value(&kind).cloned() {
        None => Ok(()),
        Some(Json::String(kind)) if kind == "none" => Ok(()),
        Some(Json::String(kind)) if kind == "linear" => {
            reader.need(&[&factor])?;
            reader.set("rope_scaling", Value::Word(kind));
            reader.copy_if_set(&[(&factor, "rope_factor")])
        }
        Some(other) => Err(Error::value(kind, other.to_string(), "none or linear")),
    }
}

/// Rotary positions stretched as Llama 3.1's: the file has what each frequency is divided by, and not why.
fn factors(width: usize, file: &mut Gguf, reader: &mut ConfigReader<'_>) -> Result<()> {
    let wrong = |found: String, expected: &str| Err(Error::value(FACTORS, found, expected));
    let factors = match file.values(FACTORS) {
        Ok(factors) => factors,
        Err(error) => return wrong(error.to_string(), "values that can be read"),
    };
    if 2 * factors.len() != width {
        return wrong(format!("{} factors", factors.len()), "one for each pair of a head's entries");
    }
    if factors.iter().all(|&factor| factor == 1.0) {
        return Ok(());
    }
    let theta = match reader.get("rope_theta") {
        Some(&Value::Real(theta)) => theta,
        _ => 1e4,
    };
    let Some(Scaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_len }) = llama3(&factors, theta)
    else {
        return wrong("factors that are not Llama 3.1's".into(), "those of its way to stretch rotary positions");
    };
    reader.set("rope_scaling", Value::Word("llama3".into()));
    let reals = [("factor", factor), ("low_freq_factor", low_freq_factor), ("high_freq_factor", high_freq_factor)];
    for (name, value) in reals {
        reader.set(&format!("rope_{name}"), Value::Real(value.into()));
    }
    reader.set_json("rope_original_max_len", FACTORS, &original_max_len.into())
}

/// The scaling that gives these factors, if there is one.
///
/// With x = f / 2 pi and L tokens of training, what lies between the two bounds is mixed with s = (L x - low) / (high - low),
/// a line whose slope and height tell L / low and high / low. Nothing else counts, so low is 1.
fn llama3(factors: &[f32], theta: f64) -> Option<Scaling> {
    let plain = Rope::new(2 * factors.len(), theta, Scaling::None);
    let factor = factors.iter().copied().fold(1.0, f32::max);
    if !factor.is_finite() || factors.iter().any(|&factor| factor.is_nan() || factor < 1.0) {
        return None;
    }
    let least = 1.0 / f64::from(factor);
    let points = plain.frequencies().iter().zip(factors).filter(|(_, f)| **f > 1.0 && **f < factor);
    let points: Vec<(f64, f64)> = points
        .map(|(&frequency, &f)| {
            (f64::from(frequency) / std::f64::consts::TAU, (1.0 / f64::from(f) - least) / (1.0 - least))
        })
        .collect();
    // The usual values, where too few points tell.
    let mut found = vec![(4.0, 8192.0)];
    if let Some((slope, height)) = line(&points) {
        found.push((1.0 - 1.0 / height, -slope / height));
    }
    let scalings = found.into_iter().filter(|(high, len)| *high > 1.0 && (1.0..1e7).contains(len));
    let mut scalings = scalings.map(|(high, len)| Scaling::Llama3 {
        factor,
        low_freq_factor: 1.0,
        high_freq_factor: ((high * 1000.0).round() / 1000.0) as f32,
        original_max_len: len.round() as usize,
    });
    scalings.find(|scaling| {
        let scaled = Rope::new(2 * factors.len(), theta, *scaling);
        let ratios = plain.frequencies().iter().zip(scaled.frequencies()).map(|(plain, scaled)| plain / scaled);
        ratios.zip(factors).all(|(ratio, factor)| (ratio / factor - 1.0).abs() < 1e-4)
    })
}

/// Slope and height of the line nearest to points.
fn line(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let mean = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64;
    let (x, y) = (mean(&|point| point.0), mean(&|point| point.1));
    let (across, along) = (mean(&|point| (point.0 - x) * (point.1 - y)), mean(&|point| (point.0 - x).powi(2)));
    let slope = across / along;
    Some((slope, y - slope * x)).filter(|_| points.len() > 1 && slope.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalings_come_back_from_their_factors() {
        for (width, theta, factor, low, high, len) in [
            (64, 5e5, 32.0, 1.0, 4.0, 8192),
            (128, 5e5, 8.0, 1.0, 4.0, 8192),
            (128, 1e4, 16.0, 1.0, 6.0, 2048),
            (64, 1e5, 4.0, 2.0, 8.0, 4096), // the same as 1, 4 and 2048
        ] {
            let of = |low_freq_factor, high_freq_factor, original_max_len| Scaling::Llama3 {
                factor,
                low_freq_factor,
                high_freq_factor,
                original_max_len,
            };
            let [plain, scaled] = [Scaling::None, of(low, high, len)].map(|scaling| Rope::new(width, theta, scaling));
            let ratio = |(plain, scaled): (&f32, &f32)| plain / scaled;
            let factors: Vec<f32> = plain.frequencies().iter().zip(scaled.frequencies()).map(ratio).collect();
            let expected = of(1.0, high / low, (len as f32 / low) as usize);
            assert_eq!(llama3(&factors, theta), Some(expected), "{factors:?}");
        }
        assert_eq!(llama3(&[1.0, 3.0, 2.0, 8.0], 1e4), None);
        assert_eq!(llama3(&[1.0, f32::NAN, 2.0, 8.0], 1e4), None);
        assert_eq!(llama3(&[1.0, 0.0, f32::INFINITY, -1.0], 1e4), None);
    }
}
