//! A model of this family as a file. Equal layers are Llama, Qwen2 or Qwen3; a stack of other layers is `deci`.
//!
//! llama.cpp reads the width of heads from the first layer, and goes on with what entered a layer that has no
//! feed-forward: there it gets tiny ones of zeros, which add nothing.

use super::super::{Heads, LayerSizes, keys_of, layer_sizes};
use super::{EQUAL, FACTORS, STACK, place};
use crate::folder::GgufModel;
use lathe_core::{Activation, Frame, Model};
use lathe_gguf::{Array, Value};
use lathe_ops::rope::{Rope, Scaling};

/// Inner width of a feed-forward of zeros.
const TINY: u32 = 32;

/// How a model stands in a file.
pub(super) fn model(model: &Model) -> Result<GgufModel, String> {
    let frame = &model.frame;
    let mut layers = layer_sizes(model)?;
    if frame.activation != Activation::Swiglu {
        return Err(format!("llama.cpp has this family with swiglu alone, not {}", frame.activation.name()));
    }
    let all: Vec<Heads> = layers.iter().filter_map(|layer| layer.attention).collect();
    let Some(&first) = all.first() else { return Err("llama.cpp has no stack without attention".into()) };
    if let Some(other) = all.iter().find(|heads| heads.d_head != first.d_head) {
        return Err(format!(
            "llama.cpp has heads of one width in a model, and it has {} and {}",
            first.d_head, other.d_head
        ));
    }
    let architecture = architecture(frame, layers.iter().all(|layer| *layer == layers[0] && complete(layer)))?;
    let zeros = zeros(&mut layers, frame.d_model as usize, first.d_head as usize);

    let width = first.d_head as usize;
    let numbers = |of: &dyn Fn(&LayerSizes) -> u32| {
        let all: Vec<u32> = layers.iter().map(of).collect();
        match architecture == STACK {
            true => Value::Array(Array::I32(all.iter().map(|&number| number as i32).collect())),
            false => Value::U32(all[0]),
        }
    };
    let mut keys = keys_of(model, layers.len());
    let theta = frame.real("rope_theta").unwrap_or(1e4);
    keys.extend([
        ("feed_forward_length", numbers(&|layer| layer.inner.unwrap_or(0))),
        ("attention.head_count", numbers(&|layer| layer.attention.map_or(0, |heads| heads.heads))),
        ("attention.head_count_kv", numbers(&|layer| layer.attention.map_or(0, |heads| heads.kv_heads))),
        ("attention.key_length", Value::U32(first.d_head)),
        ("attention.value_length", Value::U32(first.d_head)),
        ("attention.layer_norm_rms_epsilon", Value::F32(frame.real("norm_eps").unwrap_or(1e-5) as f32)),
        ("rope.dimension_count", Value::U32(first.d_head)),
        ("rope.freq_base", Value::F32(theta as f32)),
    ]);
    let mut more = zeros;
    match frame.word("rope_scaling") {
        Some("linear") => keys.extend([
            ("rope.scaling.type", Value::Text("linear".into())),
            ("rope.scaling.factor", Value::F32(frame.real("rope_factor").unwrap_or(1.0) as f32)),
        ]),
        Some("llama3") if ![EQUAL, STACK].contains(&architecture) => {
            return Err(format!("llama.cpp has rotary positions stretched as Llama 3.1's not with {architecture}"));
        }
        Some("llama3") => more.push((FACTORS.into(), vec![width / 2], factors(width, theta, frame))),
        _ => {}
    }
    Ok(GgufModel { architecture, keys, place: Box::new(move |param| place(param, architecture, width)), more })
}

fn complete(layer: &LayerSizes) -> bool {
    layer.attention.is_some() && layer.inner.is_some()
}

/// What llama.cpp calls such a model.
fn architecture(frame: &Frame, equal: bool) -> Result<&'static str, String> {
    let [qkv, out, norm] = ["qkv_bias", "out_bias", "head_norm"].map(|name| frame.flag(name));
    match (equal, norm, qkv, out) {
        (false, true, ..) => Err("llama.cpp norms queries and keys in stacks of equal layers alone".into()),
        (false, ..) => Ok(STACK),
        (true, true, false, false) => Ok("qwen3"),
        (true, true, ..) => Err("llama.cpp norms queries and keys in models without biases alone".into()),
        (true, false, true, false) if frame.word("rope_scaling") != Some("llama3") => Ok("qwen2"),
        (true, false, ..) => Ok(EQUAL),
    }
}

/// Gives layers the parts that they lack in a stack, of zeros.
fn zeros(layers: &mut [LayerSizes], d: usize, width: usize) -> Vec<(String, Vec<usize>, Vec<f32>)> {
    let mut zeros = Vec::new();
    for (number, layer) in layers.iter_mut().enumerate() {
        let mut zero = |part: &str, shape: &[usize]| {
            zeros.push((format!("blk.{number}.{part}.weight"), shape.to_vec(), vec![0.0; shape.iter().product()]));
        };
        if number == 0 && layer.attention.is_none() {
            layer.attention = Some(Heads { heads: 1, kv_heads: 1, d_head: width as u32 });
            zero("attn_norm", &[d]);
            ["attn_q", "attn_k", "attn_v"].iter().for_each(|part| zero(part, &[width, d]));
            zero("attn_output", &[d, width]);
        }
        if layer.inner.is_none() {
            layer.inner = Some(TINY);
            let inner = TINY as usize;
            zero("ffn_norm", &[d]);
            ["ffn_gate", "ffn_up"].iter().for_each(|part| zero(part, &[inner, d]));
            zero("ffn_down", &[d, inner]);
        }
    }
    zeros
}

/// What each frequency of rotary positions is divided by.
fn factors(width: usize, theta: f64, frame: &Frame) -> Vec<f32> {
    let scaling = crate::backbones::llama::rotary(frame).scaling;
    let [plain, scaled] = [Scaling::None, scaling].map(|scaling| Rope::new(width, theta, scaling));
    plain.frequencies().iter().zip(scaled.frequencies()).map(|(plain, scaled)| plain / scaled).collect()
}
