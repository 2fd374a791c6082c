//! The benchmarks in the forms in which they are distributed, from small files that `oracles/benchmarks.py` wrote with
//! what they mean; and files of one's own, right and wrong.

use lathe_core::{Model, Spec};
use lathe_model::{Network, REGISTRY};
use lathe_train::data::{Data, Tokenizer};
use lathe_train::evaluate::{Evaluation, Options};
use lathe_train::examples::benchmarks::{self, BENCHMARKS, Benchmark};
use lathe_train::examples::open::{self, Wanted};
use lathe_train::examples::{Example, Examples, Target};
use lathe_train::settings::Settings;
use lathe_train::tasks::{self, Cut, Task};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn fixtures() -> PathBuf {
    PathBuf::from(format!("{}/tests/it/fixtures/benchmarks", env!("CARGO_MANIFEST_DIR")))
}

fn wanted<'a>(task: &'a str, columns: &'a str) -> Wanted<'a> {
    Wanted { task, columns, labelled: true }
}

/// What is right for an example, as the oracle writes it.
fn right(example: &Example) -> Value {
    match &example.target {
        Target::None => Value::Null,
        Target::Label(label) => json!(label),
        Target::Value(value) => json!(value),
        Target::Right(right) => json!(right),
        Target::Answers(answers) => answers.iter().map(|answer| json!([answer.text, answer.start])).collect(),
    }
}

fn texts(example: &Example) -> Value {
    let of = |(a, b): &(String, Option<String>)| std::iter::once(a).chain(b).cloned().collect::<Vec<_>>();
    example.texts.iter().map(of).collect::<Vec<_>>().into()
}

#[test]
fn every_benchmark_is_read_as_it_is_distributed() {
    let expected: Value = serde_json::from_slice(&std::fs::read(fixtures().join("expected.json")).unwrap()).unwrap();
    for benchmark in BENCHMARKS.iter().filter(|benchmark| !benchmark.name.starts_with("glue:MNLI-")) {
        let files = expected[benchmark.name].as_object().unwrap_or_else(|| panic!("{} in the oracle", benchmark.name));
        let named: Vec<&str> = benchmark.train.iter().chain(benchmark.dev.iter().copied().flatten()).copied().collect();
        for (file, examples) in files {
            assert!(named.contains(&file.as_str()), "{}: {file}", benchmark.name);
            let mut notes = Vec::new();
            let path = fixtures().join(benchmark.folder).join(file);
            let found = wanted(benchmark.name, "").read(&path, &mut |note| notes.push(note)).unwrap();
            let examples = examples.as_array().unwrap();
            assert_eq!(found.examples.len(), examples.len(), "{} {file}", benchmark.name);
            for (found, expected) in found.examples.iter().zip(examples) {
                assert_eq!(texts(found), expected["texts"], "{} {file}", benchmark.name);
                assert_eq!(right(found), expected["right"], "{} {file}", benchmark.name);
                assert_eq!(json!(found.group), *expected.get("group").unwrap_or(&json!("")), "{}", benchmark.name);
            }
            let short = benchmark.name == "glue:QQP" && file == "train.tsv";
            assert_eq!(notes.len(), usize::from(short), "{notes:?}");
        }
    }
    let suites = ["glue", "superglue"].map(|suite| benchmarks::suite(suite).len());
    assert_eq!(suites, [9, 8], "tasks that count");
}

fn model(benchmark: &Benchmark) -> Model {
    let toml = "backbone='bert'\nlayers='sf'\nd_model=16\nheads=2\ninner=24\nvocab=256\nmax_len=96";
    let settings = Settings { task: benchmark.name.into(), ..Settings::default() };
    open::fit(&settings, &Spec::from_toml(toml, &REGISTRY).unwrap(), &REGISTRY).unwrap().model(&REGISTRY).unwrap()
}

fn evaluate(task: &dyn Task, network: &Network, examples: Examples) -> Evaluation {
    let data = Data::Examples(Arc::new(examples));
    task.evaluate(network, &data, &Options::new(&Tokenizer::Bytes), &mut |_, _| {}).unwrap()
}

#[test]
fn every_benchmark_is_learnt_from_and_judged() {
    for benchmark in BENCHMARKS {
        let model = model(benchmark);
        let task = tasks::find(benchmark.name, &model).unwrap();
        assert_eq!(task.key(), benchmark.task);
        let folder = fixtures().join(benchmark.folder);
        let network = Network::new(model, 1).unwrap();
        for path in wanted(benchmark.name, "").judged(&folder).unwrap() {
            let examples = wanted(benchmark.name, "").read(&path, &mut |_| ()).unwrap();
            let count = examples.examples.len() as u64;
            let found = evaluate(task, &network, examples);
            assert_eq!(found.examples, Some(count));
            let mut names: BTreeSet<&str> = found.scores.keys().map(String::as_str).collect();
            names.extend(found.accuracy.map(|_| "accuracy"));
            let mut expected: BTreeSet<&str> = benchmark.metrics.iter().map(|metric| metric.name()).collect();
            expected.insert("score");
            assert_eq!(names, expected, "{}", benchmark.name);
            assert!(found.scores["score"].abs() <= 1.0, "{}: {found:?}", benchmark.name);
        }
        if benchmark.train.is_empty() {
            let settings =
                Settings { task: benchmark.name.into(), data: folder.display().to_string(), ..Settings::default() };
            let error = open::training(&settings, true, &mut |_| ()).unwrap_err().to_string();
            assert!(error.contains("it is there to judge models"), "{error}");
            continue;
        }
        // In the folder itself, or in the one that holds all of them.
        for folder in [&folder, &fixtures()] {
            let settings =
                Settings { task: benchmark.name.into(), data: folder.display().to_string(), ..Settings::default() };
            let (train, valid) = open::training(&settings, true, &mut |_| ()).unwrap();
            assert!(valid.is_some_and(|valid| valid.path != train.path), "{}", benchmark.name);
            let cut = Cut { batch: 2, len: 96, seed: 0, tokenizer: &Tokenizer::Bytes };
            let data = Data::Examples(Arc::new(train));
            let batches = task.batches(&network.model.frame, &data, &cut).unwrap();
            assert!(batches.batch(0).unwrap().counted() > 0, "{}", benchmark.name);
        }
    }
}

fn file(folder: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn files_of_ones_own_are_read_in_three_forms() {
    let folder = tempfile::tempdir().unwrap();
    let read = |name: &str, text: &str, task: &str, columns: &str| {
        wanted(task, columns).read(&file(&folder, name, text), &mut |_| ()).unwrap().examples
    };
    let tsv = read("a.tsv", "title\ttopic\nBig win\tsport\nRates up\tmoney\n", "classify", "title,topic");
    let csv = read("a.csv", "id,topic,title\n1,sport,Big win\n2,money,\"Rates up\"\n", "classify", "title,topic");
    let jsonl = "{\"title\": \"Big win\", \"topic\": \"sport\"}\n{\"title\": \"Rates up\", \"topic\": \"money\"}\n";
    let jsonl = read("a.jsonl", jsonl, "classify", "title,topic");
    for (found, line) in [(&tsv, 2), (&csv, 2), (&jsonl, 1)] {
        assert_eq!(found.iter().map(right).collect::<Vec<_>>(), [json!("sport"), json!("money")]);
        assert_eq!(found.iter().map(texts).collect::<Vec<_>>(), [json!([["Big win"]]), json!([["Rates up"]])]);
        assert_eq!(found[0].line, line);
    }
    // The usual names of columns need not be told.
    let pairs = "sentence1,sentence2,score\nA,B,2\nC,D,4\n";
    assert_eq!(texts(&read("b.csv", pairs, "regress", "")[0]), json!([["A", "B"]]));
    // Similar texts are read apart, and their similarity is at most 1.
    let apart = read("b.csv", pairs, "embed", "");
    assert_eq!((texts(&apart[0]), right(&apart[0])), (json!([["A"], ["B"]]), json!(0.5)));
    let choice = read("c.csv", "q,a,b,c,right\nWho?,x,y,z,2\n", "choose", "q,a,b,c,right");
    assert_eq!(
        (texts(&choice[0]), right(&choice[0])),
        (json!([["Who?", "x"], ["Who?", "y"], ["Who?", "z"]]), json!([2]))
    );
    let answer = "{\"id\":\"1\",\"question\":\"Who?\",\"context\":\"Ida did\",\"answers\":{\"text\":[\"Ida\"],\"answer_start\":[0]}}";
    assert_eq!(right(&read("d.jsonl", answer, "span", "")[0]), json!([["Ida", 0]]));
}

#[test]
fn labels_are_those_of_the_examples_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let fit = |text: &str, model: &str| {
        let data = file(&folder, "a.csv", text).display().to_string();
        let settings = Settings { task: "classify".into(), data, ..Settings::default() };
        let toml = format!("backbone='bert'\nlayers='sf'\nd_model=8\nvocab=9\n{model}");
        let spec = open::fit(&settings, &Spec::from_toml(&toml, &REGISTRY).unwrap(), &REGISTRY).unwrap();
        spec.get("labels").unwrap().to_string()
    };
    assert_eq!(fit("text,label\na,10\nb,9\nc,10\nd,e\n", ""), r#"["10", "9", "e"]"#);
    assert_eq!(fit(&format!("text,label\na,10\nb,9\n{}", "c,9\n".repeat(20)), ""), r#"["9", "10"]"#);
    // Those that a model knows keep their places.
    let known = "head='classify'\nlabels=['b','a','c']";
    assert_eq!(fit("text,label\nx,a\ny,b\n", known), r#"["b", "a", "c"]"#);
    assert_eq!(fit("text,label\nx,a\ny,d\n", known), r#"["a", "d"]"#);
}

/// Whatever is wrong is told with file and line.
#[test]
fn what_is_wrong_with_examples_is_told_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let error = |name: &str, text: &str, task: &str, columns: &str| {
        let path = file(&folder, name, text);
        let error = match wanted(task, columns).read(&path, &mut |_| ()) {
            Ok(examples) => {
                let mut model = model(benchmarks::find("glue:SST-2").unwrap());
                model.frame.max_len = 24;
                let task = tasks::named(task).unwrap();
                let cut = Cut { batch: 2, len: 24, seed: 0, tokenizer: &Tokenizer::Bytes };
                task.batches(&model.frame, &Data::Examples(Arc::new(examples)), &cut).err()
            }
            Err(error) => Some(error),
        };
        let error = error.expect("an error").to_string();
        error.replace(&path.display().to_string(), name)
    };
    let told = error("a.csv", "text,label\nx,positive\ny,grand\n", "classify", "");
    let expected = "a.csv, line 3: found the label `grand`, which the model does not know; expected negative, positive";
    assert_eq!(told, expected);
    let told = error("a.tsv", "sentence\tlabel\nx\t1\ny\t7\n", "glue:SST-2", "");
    assert_eq!(told, "a.tsv, line 3: found the label `7`; expected 0, 1");
    let told = error("a.csv", "text,label\nx,1\n", "classify", "text,topic");
    assert_eq!(told, "a.csv, line 2: found the columns label, text; expected a column `topic`");
    let told = error("a.csv", "one,two\nx,1\n", "classify", "");
    assert!(told.starts_with("a.csv, line 2: found the columns one, two; expected columns of texts"), "{told}");
    let told = error("a.csv", "text,label\nx,high\n", "regress", "");
    assert_eq!(told, "a.csv, line 2: found the value `high`; expected a number");
    let told = error("a.csv", "text,label\n,positive\n", "classify", "");
    assert_eq!(told, "a.csv, line 2: found an empty text; expected at least one token");
    let told = error("a.csv", "q,a,b,label\nx,1,2,2\n", "choose", "q,a,b,label");
    assert_eq!(told, "a.csv, line 2: found 2 as the right choice; expected a number from 0 to 1");
    assert!(error("a.csv", "text,label\nx,1\n", "choose", "text,label").contains("at least two choices"));
    assert!(error("a.csv", "text,label\n", "classify", "").contains("found no examples"));
    let outside = "{\n\"data\": [{\"paragraphs\": [{\"context\": \"Ida did\", \"qas\": [\n{\"id\": \"q7\", \"question\": \"Who?\",\n\"answers\": [{\"text\": \"Eve\", \"answer_start\": 0}]}]}]}]}";
    let told = error("a.json", outside, "squad", "");
    assert_eq!(
        told,
        "a.json, line 3, `q7`: found the answer `Eve` at character 0, where its context of 7 characters has it not; expected an \
         answer inside its context"
    );
    let long = "{\"id\":\"1\",\"question\":\"Who was it that really did it?\",\"context\":\"Ida\",\"answers\":[]}";
    let told = error("a.jsonl", long, "span", "");
    assert!(
        told.starts_with("a.jsonl, line 1: found max_len: found 24") && told.ends_with("expected a shorter question"),
        "{told}"
    );
}

#[test]
fn what_is_cut_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let text =
        format!("text,label\nshort,positive\n{},negative\n{},negative\n", "long ".repeat(9), "longer ".repeat(9));
    let examples = wanted("classify", "").read(&file(&folder, "a.csv", &text), &mut |_| ()).unwrap();
    let network = Network::new(model(benchmarks::find("glue:SST-2").unwrap()), 1).unwrap();
    let data = Data::Examples(Arc::new(examples));
    let options = Options { window: 24, ..Options::new(&Tokenizer::Bytes) };
    let found = tasks::named("classify").unwrap().evaluate(&network, &data, &options, &mut |_, _| {}).unwrap();
    let note = found.note.unwrap();
    assert!(note.starts_with("texts of 2 examples have more than 24 tokens"), "{note}");
    assert!(note.ends_with("a.csv, line 3 has 45"), "{note}");
}

/// Texts to embed need no similarity; where columns are named, the third is one.
#[test]
fn similarities_may_be_missing() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, "a.csv", "one,other,close\na,b,0.5\nc,d,1\n");
    let read = |columns: &str| {
        let wanted = Wanted { task: "embed", columns, labelled: false };
        wanted.read(&path, &mut |_| ()).unwrap().examples
    };
    assert!(read("one,other,close").iter().all(|example| !example.target.is_none()));
    assert!(read("one,other").iter().all(|example| example.target.is_none()));
}

/// Answers come back from windows of a long context to the characters that they were in.
#[test]
fn answers_are_found_in_windows() {
    let folder = tempfile::tempdir().unwrap();
    let context = format!("{}Åsa won.{}", "x".repeat(150), "y".repeat(70));
    let record = json!({ "id": "1", "question": "Who?", "context": context, "answers": [{ "text": "Åsa", "answer_start": 150 }] });
    let examples = wanted("span", "").read(&file(&folder, "a.jsonl", &record.to_string()), &mut |_| ()).unwrap();
    let frame = model(benchmarks::find("squad").unwrap()).frame;
    let task = tasks::named("span").unwrap().of_examples().unwrap();
    let encoder =
        lathe_train::examples::encoded::Encoder { tokenizer: &Tokenizer::Bytes, max_len: 64, path: Path::new("") };
    let example = &examples.examples[0];
    let units = task.units(&frame, &encoder, example).unwrap();
    assert!(units.len() > 4);
    let with_answer: Vec<_> = units.iter().filter(|unit| unit.target != 0).collect();
    assert!(!with_answer.is_empty());
    for unit in with_answer {
        let (start, end) = ((unit.target >> 16) as usize, (unit.target & 0xffff) as usize);
        let bytes: Vec<u8> = unit.texts[0].ids[start..=end].iter().map(|&id| id as u8).collect();
        assert_eq!(String::from_utf8(bytes).unwrap(), "Åsa");
    }
    // Numbers that are high where the answer is, and nowhere else.
    let unit = task.unit(&frame, &encoder, example).unwrap();
    let targets: Vec<u32> = units.iter().map(|unit| unit.target).collect();
    assert_eq!([&[unit.target], &*unit.others].concat(), targets, "judged as it is trained");
    let len = unit.texts.iter().map(|text| text.ids.len()).max().unwrap();
    let mut values = vec![0.0; unit.texts.len() * len * 2];
    let span = Target::Answers(Vec::new());
    assert_ne!(example.target, span);
    for (window, text) in unit.texts.iter().enumerate() {
        for (token, offsets) in text.offsets.iter().enumerate().filter(|(token, _)| text.texts[*token] == Some(1)) {
            let at = 2 * (window * len + token);
            (values[at], values[at + 1]) =
                (f32::from(u8::from(offsets.0 == 150)), f32::from(u8::from(offsets.1 == 154)));
        }
    }
    let lathe_train::tasks::Prediction::Part { bytes, none, .. } = task.predict(example, &unit, &values) else {
        panic!()
    };
    assert_eq!((&context[bytes], none), ("Åsa", false));
}
