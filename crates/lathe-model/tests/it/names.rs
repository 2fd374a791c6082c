//! Nothing outside a backbone's file names it, and nothing outside a block's file knows its name: everything else goes by
//! what the registry says. Registries of files that ship, help texts and tests may use the names.

use lathe_model::REGISTRY;
use std::path::{Path, PathBuf};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, found),
            false if path.extension().is_some_and(|extension| extension == "rs") => found.push(path),
            false => {}
        }
    }
}

#[test]
fn only_its_own_file_names_a_backbone_or_a_block() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for entry in std::fs::read_dir(crates).unwrap() {
        sources(&entry.unwrap().path().join("src"), &mut files);
    }
    assert!(files.len() > 150, "{}", files.len());
    let backbones = REGISTRY.backbones.iter().map(|backbone| (backbone.key(), "lathe-model/src/backbones"));
    let blocks = REGISTRY.blocks.iter().map(|kind| (kind.key(), "lathe-model/src/blocks"));
    let names: Vec<(&str, PathBuf)> = backbones.chain(blocks).map(|(key, home)| (key, crates.join(home))).collect();
    let mut offenders = Vec::new();
    for file in &files {
        // GGUF calls kinds of tokenizers by the models that first had them.
        let suite = file.file_name().is_some_and(|name| name == "conformance.rs" || name == "gguf_tokenizer.rs");
        let text = std::fs::read_to_string(file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default(); // tests stand at the end
        for (number, line) in code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            for (name, _) in names.iter().filter(|(_, home)| !suite && !file.starts_with(home)) {
                if line.contains(&format!("\"{name}\"")) || line.contains(&format!("'{name}'")) {
                    offenders.push(format!("{}:{}: {}", file.display(), number + 1, line.trim()));
                }
            }
        }
    }
    assert!(offenders.is_empty(), "{offenders:#?}");
    // Inside their folders, each file names its own alone; a block may be made of another, as experts are.
    for (name, home) in &names {
        let mut files = Vec::new();
        sources(home, &mut files);
        let named = files.iter().filter(|file| {
            let text = std::fs::read_to_string(file).unwrap();
            text.lines().any(|line| !line.trim_start().starts_with("//") && line.trim() == format!("\"{name}\""))
                || text.contains(&format!("key: \"{name}\""))
        });
        assert_eq!(named.count(), 1, "{name}");
    }
}
