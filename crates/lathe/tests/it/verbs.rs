//! What scripts rely on: keys, exit codes, where output goes.

use crate::{fails, json, text};
use lathe_model::shipped;
use std::fs::Permissions;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

fn file(content: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    file.write_all(content).unwrap();
    file
}

#[test]
fn count_has_its_keys() {
    let found = json(&["count", "transformer_xl_base", "--tgt-len", "64", "--mem-len", "640"]);
    for (section, keys) in [
        ("params", "total decoder embedding position attention ffn moe norm"),
        ("flops", "total blocks attention ffn moe output output_full"),
        ("bytes", "weights activations state"),
    ] {
        for key in keys.split(' ') {
            assert!(found[section][key].is_u64(), "{section}.{key}");
        }
    }
    assert_eq!(found["layers"], "(sf)x16");
    assert_eq!(found["blocks"], 32);
    assert_eq!(found["params"]["total"], 191_965_658);
    assert_eq!(found["flops"]["attention"], 16 * 1_312_817_152_u64);
    assert_eq!(found["bytes"]["state"], 32 * 640 * 512 * 4);
    assert_eq!(found["per_block"].as_array().unwrap().len(), 32);
    let twice = json(&["count", "transformer_xl_base", "--tgt-len", "64", "--mem-len", "640", "--batch", "2"]);
    assert_eq!(twice["flops"]["total"].as_u64(), found["flops"]["total"].as_u64().map(|n| 2 * n));
}

#[test]
fn flags_stand_for_a_file_and_override_one() {
    let flags = "count --backbone gpt2 --layers (sf)x12 --d-model 768 --heads 12 --inner 3072 --vocab 50257";
    let flags: Vec<&str> = flags.split(' ').collect();
    assert_eq!(json(&flags)["params"]["total"], 124_439_808);
    assert_eq!(json(&["count", "gpt2_small", "--layers", "-"])["params"]["decoder"], 2 * 768);
    let model = file(b"backbone = 'gpt2'\nlayers = 'sf'\nd_model = 64\nvocab = 256\n");
    let path = model.path().to_str().unwrap();
    assert_eq!(json(&["count", path, "--layers", "(sf)x3"])["blocks"], 6);
}

#[test]
fn adaptive_softmax_counts_by_hand() {
    let args = "count --backbone transformer_xl --layers f --d-model 8 --inner 4 --vocab 100 --cutoffs 10,30";
    let found = |extra: &[&str]| {
        let adaptive = if extra.contains(&"--div-val") { &[][..] } else { &["--d-embed", "8", "--div-val", "2"] };
        let args: Vec<&str> = args.split(' ').chain(adaptive.iter().copied()).chain(extra.iter().copied()).collect();
        json(&args)["params"]["embedding"].as_u64().unwrap()
    };
    // input: 10*8 + 20*4 + 70*2 and projections 8*(8 + 4 + 2); output: 100 biases, 2 rows of 8 and their biases,
    // the first cluster's own projection 8*8
    let tied = 10 * 8 + 20 * 4 + 70 * 2 + 8 * 14 + 100 + 2 * 8 + 2 + 64;
    assert_eq!(found(&[]), tied);
    assert_eq!(found(&["--tie-projs", "false"]), tied + 8 * 6);
    assert_eq!(found(&["--tie-embeddings", "false"]), tied + 300);
    // One width for all clusters: one input projection 8*4, and at the output one for the first cluster or one each.
    let one_width = 100 * 4 + 32 + 100 + 2 * 4 + 2 + 32;
    assert_eq!(found(&["--d-embed", "4", "--div-val", "1"]), one_width);
    assert_eq!(found(&["--d-embed", "4", "--div-val", "1", "--tie-projs", "false"]), one_width + 2 * 32);
}

#[test]
fn design_prints_the_papers_stacks() {
    assert_eq!(text(&["design", "par", "--blocks", "24", "--p", "5"]), "(sff)x5 (f)x9\n");
    assert_eq!(json(&["design", "sandwich", "--blocks", "32", "--k", "6"])["layers"], "(s)x6 (sf)x10 (f)x6");
    let scaled = json(&["design", "scaled", "--backbone", "transformer_xl", "--layers", "4"]);
    assert_eq!(scaled, serde_json::json!({"layers": "(sf)x4", "d_model": 512, "heads": 8, "inner": 2048}));
    let scaled = json(&["design", "scaled", "--backbone", "gpt2", "--layers", "4", "--as-printed"]);
    assert_eq!(scaled, serde_json::json!({"layers": "(sf)x4", "d_model": 1024, "heads": 12, "inner": 3072}));
    let base = json(&["design", "par", "--blocks", "32", "--p", "5", "--every", "4"]);
    assert_eq!(base["layers"], "(sfff)x6 (f)x8");
}

#[test]
fn space_has_its_keys_and_seeds() {
    let found = json(&["space", "planer_enwik8", "--sample", "3", "--seed", "1"]);
    assert_eq!(found["size"], "4722366482869645213696");
    assert!((found["log10_size"].as_f64().unwrap() - 24.0 * 8f64.log10()).abs() < 1e-9);
    assert_eq!(found["samples"].as_array().unwrap().len(), 3);
    assert!(found["samples"][0]["layers"].is_string() && found["samples"][0]["d_model"] == 512);
    assert_eq!(found, json(&["space", "planer_enwik8", "--sample", "3", "--seed", "1"]));
    assert_ne!(found, json(&["space", "planer_enwik8", "--sample", "3", "--seed", "2"]));
    assert_ne!(found, json(&["space", "planer_enwik8", "--sample", "3", "--seed", "1", "--uniform"]));
    assert_eq!(json(&["space", "--list"])["spaces"].as_array().unwrap().len(), shipped::SPACES.len());
    assert!(text(&["space", "lts_gpt2", "--sample", "2"]).contains("10^37.5"));
}

#[test]
fn models_lists_and_prints() {
    let list = json(&["models"]);
    assert!(list["models"].as_array().unwrap().iter().any(|model| model["name"] == "gpt2_small"));
    let printed = file(text(&["models", "par-base"]).as_bytes());
    let found = json(&["count", printed.path().to_str().unwrap()]);
    assert_eq!(found["params"]["total"], 199_845_338);
}

#[test]
fn completions_and_man_page_know_every_verb() {
    for verb in ["count", "design", "space", "models"] {
        assert!(text(&["completions", "bash"]).contains(verb));
        assert!(text(&["man"]).contains(verb));
        let page = text(&["man", verb]);
        assert!(
            page.contains(&format!(".TH lathe-{verb} ")) && page.contains("\\-\\-json") && page.contains("threads")
        );
    }
}

/// Each page that a page refers to can be printed.
#[test]
fn man_pages_refer_to_pages_that_exist() {
    let mut pages = vec![text(&["man"])];
    let mut printed = 0;
    while let Some(page) = pages.pop() {
        let references = page.lines().filter(|line| line.starts_with("lathe\\-") && line.ends_with("(1)"));
        for reference in references.filter(|reference| !reference.contains("help")) {
            let verb = reference.trim_start_matches("lathe\\-").trim_end_matches("(1)").replace('\\', "");
            pages.push(text(&["man", &verb]));
            printed += 1;
        }
    }
    assert!(printed >= 9, "verbs, and the rules of design");
}

/// Runs it with `--json` on a file that comes through a pipe.
fn piped(args: &[&str], content: &str) -> serde_json::Value {
    let mut command = crate::command(&[args, &["/dev/stdin", "--json"]].concat());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(content.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success(), "{args:?}");
    serde_json::from_slice(&out.stdout).unwrap()
}

/// Whatever can be read is read, once.
#[test]
fn models_and_spaces_come_through_pipes() {
    for (verb, shipped) in [("count", shipped::MODELS[0]), ("space", shipped::SPACES[0])] {
        assert_eq!(piped(&[verb], shipped.text), json(&[verb, shipped.name]));
    }
    let tiny = "backbone = 'gpt2'\nlayers = 'sf'\nd_model = 8\nvocab = 8\n";
    assert!(piped(&["bench", "--seq", "4", "--seconds", "0"], tiny)["latency_ms"]["median"].is_f64());
}

/// Every cap of the instructions works, and what is said of bf16 is what runs.
#[test]
fn the_doctor_under_every_cap() {
    for cap in ["portable", "avx2", "avx512", "avx512bf16", "amx"] {
        let run = |args: &[&str]| {
            let out = crate::command(args).env("LATHE_CPU", cap).output().unwrap();
            assert!(out.status.success(), "{cap}: {}", String::from_utf8_lossy(&out.stderr));
            (serde_json::from_slice::<serde_json::Value>(&out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap())
        };
        let (doctor, _) = run(&["doctor", "--seconds", "0", "--json"]);
        let level = doctor["instructions"].as_str().unwrap();
        let has_bf16 = ["avx512bf16", "amx"].contains(&level);
        assert!(doctor["f32_peak"].as_f64().unwrap() > 0.0 && doctor["memory_bandwidth"].as_f64().unwrap() > 0.0);
        assert_eq!(doctor["bf16_peak"].is_f64(), has_bf16);
        let tiny = ["--backbone", "gpt2", "--layers", "sf", "--d-model", "8", "--vocab", "8", "--seq", "4"];
        let bench = [&["bench", "--seconds", "0", "--precision", "bf16", "--json"], &tiny[..]].concat();
        let (bench, said) = run(&bench);
        assert_eq!(bench["instructions"], level);
        assert_eq!(bench["precision"], if has_bf16 { "bf16" } else { "f32" });
        assert_eq!(said.contains("products run in f32"), !has_bf16, "{said}");
    }
}

/// A file that cannot be read is a failed run, not wrong usage.
#[test]
fn unreadable_files_exit_with_1() {
    let secret = file(b"backbone = 'gpt2'");
    std::fs::set_permissions(secret.path(), Permissions::from_mode(0o000)).unwrap();
    // Root reads it all the same; the memory of a process nobody reads at 0.
    let (path, part) = match std::fs::File::open(secret.path()) {
        Ok(_) => ("/proc/self/mem", "error"),
        Err(_) => (secret.path().to_str().unwrap(), "ermission denied"),
    };
    for verb in ["count", "space"] {
        let (code, error) = fails(&[verb, path]);
        assert!(code == 1 && error.contains(path) && error.contains(part), "{code}: {error}");
    }
}

#[test]
fn an_unwritable_stderr_changes_no_exit_code() {
    for (args, code) in [(&["count", "gpt3"][..], 2), (&["count", "gpt2_small", "--mem-len", "5"], 0)] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let status = crate::command(args).stdout(Stdio::null()).stderr(full).status().unwrap();
        assert_eq!(status.code(), Some(code), "{args:?}");
    }
}

/// Samples are printed as they are drawn: a million of 10,000 blocks would fill the memory otherwise.
#[test]
fn samples_are_streamed() {
    let space = file(
        b"[baseline]\nbackbone='gpt2'\nlayers='s'\nd_model=8\nvocab=8\n[[slots]]\noptions=['s','f']\nrepeat=10000",
    );
    for json in [&["--json"][..], &[]] {
        let args = [&["space", space.path().to_str().unwrap(), "--sample", "1000000"], json].concat();
        let mut child = crate::command(&args).stdout(Stdio::piped()).spawn().unwrap();
        let mut start = vec![0; 100_000];
        child.stdout.take().unwrap().read_exact(&mut start).unwrap();
        assert!(child.wait().unwrap().success(), "the reader went away, as `head` does");
    }
}

#[test]
fn piped_output_has_no_colours() {
    for args in [&["count", "gpt2_small"][..], &["space", "cpu", "--sample", "1"], &["models"]] {
        assert!(!text(args).contains('\u{1b}'), "{args:?}");
    }
}

#[test]
fn wrong_usage_exits_with_2_and_names_the_trouble() {
    let garbage = file(&vec![0xff; 1 << 20]);
    let zeros = file(&vec![0; 3 << 20]);
    let accents = file("é".repeat(1 << 20).as_bytes()); // the limit cuts one in two
    let unknown = file(b"backbone = 'gpt2'\nlayers = 'sf'\nd_modle = 64\nvocab = 256\n");
    let path = |file: &tempfile::NamedTempFile| file.path().to_str().unwrap().to_string();
    let deep = "(".repeat(10_000);
    let long = "x".repeat(10_000);
    for (args, part) in [
        (&["count"][..], "no model"),
        (&["count", "gpt3"], "`gpt3` is neither a model file nor a shipped model"),
        (&["count", &path(&garbage)], "not UTF-8"),
        (&["count", &path(&zeros)], "the file is longer than 1048576 bytes"),
        (&["count", &path(&accents)], "the file is longer than 1048576 bytes"),
        (&["space", &path(&accents)], "the file is longer than 1048576 bytes"),
        (&["count", "/dev/zero"], "the file is longer than 1048576 bytes"),
        (&["count", "."], "./config.json is missing"),
        (&["count", &long], "x…` is neither a model file nor a shipped model"),
        (&["space", &long], "x…` is neither a space file nor a shipped space"),
        (&["models", &long], "x…` ships"),
        (&["man", &long], "no verb `xxx"),
        (&["count", &path(&unknown)], "did you mean `d_model`?"),
        (&["count", "gpt2_small", "--json", "--layers", "(sf"], "never closed"),
        (&["count", "gpt2_small", "--layers", &deep], "64 levels"),
        (&["count", "gpt2_small", "--layers", "(sf)x1000000000000"], "1 to 10000"),
        (&["count", "gpt2_small", "--heads", "-3"], "heads: found `-3`; expected a whole number"),
        (&["count", "gpt2_small", "--heads", "769"], "at most d_model, which is 768"),
        (&["count", "gpt2_small", "--tgt-len", "1025"], "at most max_len, which is 1024"),
        (&["count", "gpt2_small", "--batch", "0"], "--batch"),
        (&["count", "gpt2_small", "--threads", "0"], "--threads"),
        (&["design", "par", "--blocks", "3", "--p", "1"], "p: found 1"),
        (&["design", "sandwich", "--blocks", "5", "--k", "1"], "an even number"),
        (
            &["design", "scaled", "--backbone", "gpt2", "--layers", "1000000"],
            "layers: found 1000000; expected 1 to 5000",
        ),
        (&["design", "scaled", "--backbone", "bert", "--layers", "2"], "transformer_xl, gpt2"),
        (&["space"], "SPACE"),
        (&["space", "nowhere"], "neither a space file nor a shipped space"),
        (&["models", "gpt3"], "no model `gpt3` ships"),
        (&["man", "gpt3"], "no verb `gpt3`"),
        (&["fly"], "fly"),
    ] {
        let (code, error) = fails(args);
        assert_eq!(code, 2, "{:?}: {error}", args.first());
        assert!(error.contains(part), "`{part}` in: {error}");
        assert!(error.len() < 700, "{error}");
    }
}

#[test]
fn keys_of_another_backbone_are_noted() {
    let out = crate::lathe(&["count", "gpt2_small", "--mem-len", "5", "--json"]);
    assert!(out.status.success());
    assert!(String::from_utf8_lossy(&out.stderr).contains("mem_len has no effect"));
}
