//! The space around a model: every block of it may become any of a few, from nothing to a mixture of experts.

use crate::Result;
use lathe_core::model::{Value, key};
use lathe_core::{Block, BlockKind, Model, Registry, Role};

/// A model whose heads have a width of their own, so that fewer heads cost less.
pub fn with_head_width(model: &Model, registry: &Registry) -> Result<Model> {
    let mut spec = model.spec();
    let width = model.frame.d_head.unwrap_or((model.frame.d_model / model.frame.heads).max(1));
    spec.set(key("d_head").expect("a key of the model file"), Value::Int(width));
    Ok(spec.model(registry)?)
}

/// What every block may become: nothing, the variants that the kinds of blocks offer, and whatever else the model has. In
/// the iso-parameter space, the place of what computes conditionally is taken by a block of as many parameters that does not.
pub fn options(model: &Model, iso_parameter: bool, registry: &Registry) -> Vec<Block> {
    let frame = &model.frame;
    let variants = |kind: &&'static dyn BlockKind| kind.variants(frame);
    let (nothing, something): (Vec<Block>, Vec<Block>) =
        registry.blocks.iter().flat_map(variants).partition(|block| block.kind.role() == Role::Identity);
    let as_large = |block: Block| block.kind.dense(&block, frame).filter(|_| iso_parameter).unwrap_or(block);
    let fits = |block: &Block| block.kind.check(block, frame).is_ok();
    let mut options: Vec<Block> = nothing.into_iter().chain(something.into_iter().map(as_large)).filter(fits).collect();
    let resolve = |block: &Block| block.kind.resolve(block, &model.frame);
    for own in model.blocks.iter().map(resolve) {
        if !options.iter().any(|option| resolve(option) == own) {
            options.push(own);
        }
    }
    options
}

/// The file of the space of as many slots as the model has blocks. `model` is one of [`with_head_width`].
pub fn space_file(model: &Model, options: &[Block]) -> String {
    let options = options.iter().map(|option| format!("\"{option:?}\"")).collect::<Vec<_>>().join(", ");
    let baseline = model.to_toml();
    format!("[baseline]\n{baseline}\n[[slots]]\nrepeat = {}\noptions = [{options}]\n", model.blocks.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lathe_core::{Space, Spec, notation};
    use lathe_model::REGISTRY;

    #[test]
    fn a_space_holds_its_model() {
        let spec = "backbone='transformer_xl'\nlayers='(sf)x3'\nd_model=64\nheads=4\ninner=128\nvocab=256";
        let model =
            with_head_width(&Spec::from_toml(spec, &REGISTRY).unwrap().model(&REGISTRY).unwrap(), &REGISTRY).unwrap();
        let of_model = options(&model, false, &REGISTRY);
        assert_eq!(notation::print(&of_model), "- s1 s2 s4 f32 f64 f128 m8k1i64");
        assert_eq!(format!("{:?}", options(&model, true, &REGISTRY)[7]), "f512");
        let space = Space::from_toml(&space_file(&model, &of_model), &REGISTRY).unwrap();
        assert!(space.contains(&model));
        assert_eq!(space.size().to_string(), 8u64.pow(6).to_string());
        // Blocks of its own are on offer too.
        let spec = spec.replace("(sf)x3", "s3 m4k2");
        let model =
            with_head_width(&Spec::from_toml(&spec, &REGISTRY).unwrap().model(&REGISTRY).unwrap(), &REGISTRY).unwrap();
        let of_model = options(&model, false, &REGISTRY);
        assert_eq!(of_model.len(), 10);
        assert!(Space::from_toml(&space_file(&model, &of_model), &REGISTRY).unwrap().contains(&model));
    }
}
