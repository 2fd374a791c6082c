//! GPT-2 in GGUF files, where matrices are [out, in].

use super::{frame, tensor};
use crate::folder::{ConfigReader, GgufForm, GgufTensor, Order};
use lathe_core::model::Value;
use lathe_core::{Activation, Error, Result};
use lathe_gguf::Gguf;
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
        let name = tensor(param, "transformer.h.", WHOLES, PARTS)?;
        let matrix = name.starts_with("blk.") && name.ends_with(".weight") && !name.ends_with("_norm.weight");
        Some(GgufTensor { name, order: if matrix { Order::Transposed } else { Order::Same } })
    }
}
