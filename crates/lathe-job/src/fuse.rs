//! What the setting `fuse` of a training run names: stacks as they are, or model files, whose stacks stand in one frame.

use crate::{At, Error, Result, input};
use lathe_core::model::{Value, key};
use lathe_core::{Registry, Spec, notation};
use lathe_train::fused::{BETWEEN, stacks};

/// Keys that say what bare letters of a stack mean, and are written out in it.
const OF_BLOCKS: &[&str] = &["layers", "heads", "inner"];

/// The stacks of what is named, and the frame of the files among it.
pub(crate) fn read(fuse: &str, registry: &Registry) -> Result<(String, Option<Spec>)> {
    let (mut found, mut frame): (Vec<String>, Option<(&str, Spec)>) = (Vec::new(), None);
    for name in stacks(fuse) {
        if notation::parse(name, registry).is_ok() {
            found.push(name.into());
            continue;
        }
        let mut spec = input::spec(name, registry)?;
        if spec.get("vocab").is_none() {
            spec.set(key("vocab").expect("a key of the model file"), Value::Int(256)); // which changes no stack
        }
        let model = spec.model(registry).at(name)?;
        let blocks: Vec<_> = model.blocks.iter().map(|block| block.kind.resolve(block, &model.frame)).collect();
        found.push(notation::print(&blocks));
        let own = model.spec();
        let Some((first, frame)) = &frame else {
            frame = Some((name, own));
            continue;
        };
        let differs = |key: &&str| !OF_BLOCKS.contains(key) && frame.get(key) != own.get(key);
        if let Some(key) = registry.keys().map(|key| key.name).find(differs) {
            let show =
                |spec: &Spec| spec.get(key).map_or_else(|| format!("no {key}"), |value| format!("{key} = {value}"));
            let expected = format!("{}, as {first} has it, for fused models differ in their blocks alone", show(frame));
            return Err(Error::setting(format!("fuse {name}"), show(&own), expected));
        }
    }
    Ok((found.join(&format!(" {BETWEEN} ")), frame.map(|(_, frame)| frame)))
}
