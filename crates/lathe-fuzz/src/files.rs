//! What is read as files: model folders, tokenizers, GGUF files and examples. The bytes are written to a file of this
//! thread, beside which stands what belongs to it.

use lathe_gguf::Gguf;
use lathe_model::{Input, REGISTRY, folder};
use lathe_text::Tokenizer;
use lathe_train::choices;
use lathe_train::examples::Target;
use lathe_train::examples::benchmarks::BENCHMARKS;
use lathe_train::examples::open::Wanted;
use lathe_train::examples::table::Table;
use lathe_train::tasks::TASKS;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The model of which `safetensors` has the weights.
const CONFIG: &str = include_str!("config.json");
/// What tokenizers have to make tokens of.
const TEXTS: [&str; 4] = ["", " The café's\n\n<s> 12 ", "日本 🙂\u{0}x", "the cat sat on the mat"];

thread_local! {
    static PLACE: TempDir = tempfile::tempdir().expect("a folder for files");
}

/// Writes a file of this name, by itself in a folder of that name.
fn written(name: &str, data: &[u8]) -> PathBuf {
    PLACE.with(|place| {
        let folder = place.path().join(name);
        std::fs::create_dir_all(&folder).expect("a folder for files");
        let path = folder.join(name);
        std::fs::write(&path, data).expect("room for a file");
        path
    })
}

fn folder_of(path: &Path) -> &Path {
    path.parent().expect("it stands in a folder")
}

/// The `config.json` of a model folder.
pub fn config_json(data: &[u8]) {
    let path = written("config.json", data);
    if let Ok(model) = folder::load_model(folder_of(&path), &REGISTRY) {
        model.spec().model(&REGISTRY).expect("a model is one again");
    }
}

/// A `tokenizer.json`.
pub fn tokenizer_json(data: &[u8]) {
    let path = written("tokenizer.json", data);
    if let Ok(tokenizer) = Tokenizer::open(&path) {
        use_tokenizer(&tokenizer);
    }
}

fn use_tokenizer(tokenizer: &Tokenizer) {
    for text in TEXTS {
        if let Ok(ids) = tokenizer.encode(text) {
            assert!(ids.iter().all(|id| *id < tokenizer.vocab()), "tokens are below the vocabulary's size");
            tokenizer.decode(&ids);
        }
        let _ = tokenizer.encode_with_specials(text, Some(8));
    }
    let _ = tokenizer.chat_template();
}

/// The weights of a model folder.
pub fn safetensors(data: &[u8]) {
    let path = written("model.safetensors", data);
    std::fs::write(folder_of(&path).join("config.json"), CONFIG).expect("room for a file");
    if let Ok(network) = folder::load(folder_of(&path), &REGISTRY) {
        network.logits(&Input::tokens(&[1, 2, 3], 1), &mut network.init_memory(1));
    }
}

/// A GGUF file: its header and its tensors.
pub fn gguf(data: &[u8]) {
    let path = written("model.gguf", data);
    if let Ok(mut file) = Gguf::open(&path) {
        let names: Vec<String> = file.tensors().map(|(name, _)| name.to_string()).collect();
        for name in names {
            let _ = file.values(&name);
        }
    }
}

/// The tokenizer and the model that a GGUF file may hold.
pub fn gguf_model(data: &[u8]) {
    let path = written("model.gguf", data);
    if let Ok(tokenizer) = Tokenizer::open(&path) {
        use_tokenizer(&tokenizer);
    }
    if let Ok(network) = folder::load(&path, &REGISTRY) {
        network.logits(&Input::tokens(&[0], 1), &mut network.init_memory(1));
    }
}

/// A file of examples.
pub fn choices(data: &[u8]) {
    let path = written("choices.jsonl", data);
    let forms = ["", "answer", "cb"];
    for form in forms {
        if let Ok(examples) = choices::read(&path, form) {
            assert!(examples.list.iter().all(|example| example.gold.iter().all(|at| *at < example.options.len())));
        }
    }
}

/// Examples of every benchmark, and of tasks whose columns are not told, in every form of files.
pub fn examples(data: &[u8]) {
    let tasks = TASKS.iter().filter(|task| task.of_examples().is_some()).map(|task| task.key());
    let tasks: Vec<&str> = BENCHMARKS.iter().map(|benchmark| benchmark.name).chain(tasks).collect();
    for form in ["tsv", "csv", "jsonl", "json"] {
        let Ok(table) = Table::parse(Path::new("examples"), data, form, &[], true) else { continue };
        for task in &tasks {
            for labelled in [false, true] {
                let wanted = Wanted { task, columns: "", labelled };
                let Ok(found) = wanted.of_table(&table, &mut |_| ()) else { continue };
                for example in &found.examples {
                    let Target::Right(right) = &example.target else { continue };
                    assert!(right.iter().all(|at| *at < example.texts.len()), "a right choice is one of them");
                }
            }
        }
    }
}
