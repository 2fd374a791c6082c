//! `lathe count`: exact parameters, FLOPs and bytes of a model.

use super::Action;
use crate::input::ModelArgs;
use crate::output::{self, DIM, Object, Table, bytes, grouped, short};
use crate::picture;
use anyhow::Result;
use clap::Parser;
use lathe_core::{Model, Setting, notation};
use lathe_model::{Counts, count, of_blocks};
use serde::Serialize;

/// Count parameters, FLOPs and bytes of a model, exactly
#[derive(Parser)]
#[command(
    name = "count",
    after_help = "\
A multiply-add is 2 FLOPs; softmax, norms and activations are not counted. Activations are the f32 tensors that
one forward pass writes when nothing is fused; state is what decoding keeps per sequence.

Examples:
  lathe count gpt2_small
  lathe count par_base --tgt-len 64 --mem-len 640
  lathe count --backbone gpt2 --layers \"(s4 f512)x6\" --d-model 256 --vocab 256"
)]
pub struct Count {
    #[command(flatten)]
    model: ModelArgs,
    /// Sequences in a pass
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    batch: u64,
}

#[derive(Serialize)]
struct CountReport {
    layers: String,
    blocks: usize,
    params: Object,
    flops: Object,
    bytes: Object,
    per_block: Vec<PerBlock>,
}

#[derive(Serialize)]
struct PerBlock {
    block: String,
    params: u64,
    flops: u128,
    activation_bytes: u128,
    state_bytes: u128,
}

impl Action for Count {
    fn run(self, json: bool) -> Result<()> {
        let model = self.model.model()?;
        let setting = Setting { batch: self.batch, ..Setting::of(&model) };
        let counts = count(&model, &setting);
        match json {
            true => output::json(&document(&model, &setting, &counts)),
            false => output::text(&table(&model, &setting, &counts)),
        }
    }
}

fn document(model: &Model, setting: &Setting, counts: &Counts) -> CountReport {
    let by_kind = |get: fn(&lathe_core::Cost) -> u128| counts.kinds.iter().map(move |(kind, cost)| (*kind, get(cost)));
    let mut params = vec![
        ("total", counts.total_params().into()),
        ("decoder", counts.decoder_params().into()),
        ("embedding", counts.embedding_params.into()),
        ("position", counts.position_params.into()),
    ];
    params.extend(by_kind(|cost| cost.params.into()));
    params.push(("norm", counts.norm_params.into()));
    let mut flops = vec![("total", counts.total_flops()), ("blocks", counts.blocks.flops)];
    flops.extend(by_kind(|cost| cost.flops));
    flops.extend([("output", counts.output_flops), ("output_full", counts.output_full_flops)]);
    CountReport {
        layers: model.layers(),
        blocks: model.blocks.len(),
        params: Object(params),
        flops: Object(flops),
        bytes: Object(vec![
            ("weights", counts.weight_bytes()),
            ("activations", counts.activation_bytes),
            ("state", counts.blocks.state_bytes),
        ]),
        per_block: model
            .blocks
            .iter()
            .zip(of_blocks(model, setting))
            .map(|(block, cost)| PerBlock {
                block: notation::print(std::slice::from_ref(block)),
                params: cost.params + cost.norm_params,
                flops: cost.flops,
                activation_bytes: cost.activation_bytes,
                state_bytes: cost.state_bytes,
            })
            .collect(),
    }
}

fn table(model: &Model, setting: &Setting, counts: &Counts) -> String {
    let frame = &model.frame;
    let number = |kind: &str| model.blocks.iter().filter(|block| block.kind.key() == kind).count();
    let mut table = Table::new(&["", "blocks", "parameters", "FLOPs", "activations", "state"], 1);
    for (kind, cost) in &counts.kinds {
        if number(kind) > 0 {
            table.row([
                kind.to_string(),
                number(kind).to_string(),
                grouped(cost.params),
                short(cost.flops),
                bytes(cost.activation_bytes),
                bytes(cost.state_bytes),
            ]);
        }
    }
    let empty = String::new;
    table.row(["norm".into(), empty(), grouped(counts.norm_params), empty(), empty(), empty()]);
    table.row([
        "decoder".into(),
        model.blocks.len().to_string(),
        grouped(counts.decoder_params()),
        short(counts.blocks.flops),
        bytes(counts.blocks.activation_bytes),
        bytes(counts.blocks.state_bytes),
    ]);
    table.row([
        "embedding, output".into(),
        empty(),
        grouped(counts.embedding_params),
        short(counts.output_flops),
        bytes(counts.activation_bytes - counts.blocks.activation_bytes),
        empty(),
    ]);
    table.row([
        "total".into(),
        empty(),
        grouped(counts.total_params()),
        short(counts.total_flops()),
        bytes(counts.activation_bytes),
        bytes(counts.blocks.state_bytes),
    ]);
    let memory = match frame.has_memory() {
        true => format!(" after {} remembered", setting.mem_len),
        false => String::new(),
    };
    format!(
        "{}\n{}  {}\n{DIM}{}, width {}, vocabulary {}; batch {}, {} tokens{memory}{DIM:#}\n\n{table}\nweights {} in f32; every cluster of the output evaluated: {} FLOPs\n",
        picture::line(model, setting),
        model.layers(),
        format_args!("({} blocks)", model.blocks.len()),
        frame.backbone.key(),
        frame.d_model,
        grouped(frame.vocab),
        setting.batch,
        setting.tgt_len,
        bytes(counts.weight_bytes()),
        short(counts.blocks.flops + counts.output_full_flops),
    )
}
