//! GPT-2 in GGUF files, where matrices are [out, in].

use super::{frame, keys_of, layer_sizes, tensor};
use crate::folder::{ConfigReader, GgufForm, GgufModel, GgufTensor, Order};
use lathe_core::model::Value;
use lathe_core::{Activation, Error, Model, Result};
use lathe_gguf::{Gguf, Value as Written};
use serde_json::json;

pub(in crate::backbones) struct Gpt2;

const WHOLES: &[(&str, &str)] = &[
    ("transformer.wte", "token_embd"),
    ("transformer.wpe", "position_embd"),
    ("transformer.ln_f", "output_norm"),
    ("lm_head", "output"),
];
const PARTS: &[(&str, &str)] = &[
    ("ln_1", "attn_norm"),
    ("ln_2", "ffn_norm"),
    ("attn.c_attn", "attn_qkv"),
    ("attn.c_proj", "attn_output"),
    ("mlp.c_fc", "ffn_up"),
    ("mlp.c_proj", "ffn_down"),
];

impl GgufForm for Gpt2 {
    fn architectures(&self) -> &'static [&'static str] {
        &["gpt2"]
    }

    fn read(&self, architecture: &str, file: &mut Gguf, reader: &mut ConfigReader<'_>) -> Result<()> {
        frame(architecture, file, reader)?;
        let key = |name: &str| format!("{architecture}.{name}");
        reader.set("activation", Value::Word(Activation::GeluTanh.name().into()));
        reader.only(&[(&key("attention.layer_norm_epsilon"), json!(1e-5)), (&key("attention.causal"), json!(true))])?;
        match (reader.get("d_model"), reader.get("heads")) {
            (Some(&Value::Int(d)), Some(&Value::Int(heads))) if !d.is_multiple_of(heads) => {
                Err(Error::value(key("attention.head_count"), heads, format!("a divisor of the width, which is {d}")))
            }
            _ => Ok(()),
        }
    }

    fn tensor(&self, param: &str, _: &Gguf) -> Option<GgufTensor> {
        place(param)
    }

    fn write(&self, model: &Model) -> Result<GgufModel, String> {
        let layers = layer_sizes(model)?;
        let first = layers[0];
        let (Some(heads), Some(inner)) = (first.attention, first.inner) else {
            return Err("llama.cpp has GPT-2 with an attention and a feed-forward in each layer alone".into());
        };
        if let Some(number) = layers.iter().position(|layer| *layer != first) {
            return Err(format!(
                "llama.cpp has GPT-2 with equal layers alone, and layer {number} differs from layer 0"
            ));
        }
        if heads.heads * heads.d_head != model.frame.d_model {
            let found = format!("{} heads of width {}", heads.heads, heads.d_head);
            return Err(format!("llama.cpp has GPT-2 with heads as wide as the model together alone, not {found}"));
        }
        if model.frame.activation != Activation::GeluTanh {
            let found = model.frame.activation.name();
            return Err(format!("llama.cpp has GPT-2 with the activation gelu_tanh alone, not {found}"));
        }
        let mut keys = keys_of(model, layers.len());
        keys.extend([
            ("feed_forward_length", Written::U32(inner)),
            ("attention.head_count", Written::U32(heads.heads)),
            ("attention.layer_norm_epsilon", Written::F32(1e-5)),
        ]);
        Ok(GgufModel { architecture: "gpt2", keys, place: Box::new(place), more: Vec::new() })
    }
}

fn place(param: &str) -> Option<GgufTensor> {
    let name = tensor(param, "transformer.h.", WHOLES, PARTS)?;
    let matrix = name.starts_with("blk.") && name.ends_with(".weight") && !name.ends_with("_norm.weight");
    Some(GgufTensor { name, order: if matrix { Order::Transposed } else { Order::Same } })
}
