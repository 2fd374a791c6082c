//! Every `lathe ...` command in a shell block of the README works as written.

/// What `my_space.toml` of the README stands for.
const SPACE: &str = r#"
[baseline]
backbone = "transformer_xl"
layers = "(sf)x2"
d_model = 16
vocab = 256
heads = 2
inner = 32
tgt_len = 16

[[slots]]
repeat = 4
options = ["-", "s1", "s2", "f16", "f32"]
"#;

#[test]
fn readme_commands_run() {
    let readme = include_str!("../../../../README.md");
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Words enough for the merges of the README's tokenizer.
    let word = |i: usize| format!("{}{}", ["the", "birds", "fly", "north", "or", "south"][i % 6], i * i % 7919);
    let text = (0..20_000).map(word).collect::<Vec<_>>().join(" ");
    std::fs::write(folder.path().join("my.txt"), &text).expect("a text");
    std::fs::write(folder.path().join("test.txt"), &text[..2000]).expect("a text");
    std::fs::write(folder.path().join("my_space.toml"), SPACE).expect("a space");
    let reviews = format!("text,label\n{}", "a joy,good\ntoo long,bad\n".repeat(10));
    std::fs::write(folder.path().join("reviews.csv"), reviews).expect("a table");
    let mut ran = 0;
    let blocks = readme.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    for line in blocks.flat_map(str::lines).filter(|line| line.starts_with("lathe ")) {
        let command = line.split(" #").next().unwrap_or_default();
        let mut args: Vec<String> = words(command).into_iter().skip(1).collect();
        // Their defaults take minutes.
        match args[0].as_str() {
            "optimize" => args.extend(["--budget".into(), "0.4".into()]),
            "quantize" | "compare" | "prune" => args.extend(["--seconds".into(), "0.1".into()]),
            "train" | "distill" => args.extend(["--steps".into(), "2".into(), "--batch".into(), "2".into()]),
            _ => {}
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let out = crate::command(&args)
            .current_dir(folder.path())
            .env("LATHE_CACHE", folder.path().join("cache"))
            .output()
            .expect("the binary runs");
        assert!(out.status.success(), "{line}: {}", String::from_utf8_lossy(&out.stderr));
        assert!(!out.stdout.is_empty(), "{line}");
        ran += 1;
    }
    assert!(ran >= 10, "{ran} commands in the README");
}

/// What the README shows a command to print is what it prints.
#[test]
fn readme_output_is_real() {
    let readme = include_str!("../../../../README.md");
    let blocks = readme.split("```console\n$ lathe ").skip(1).filter_map(|rest| rest.split("```").next());
    let mut ran = 0;
    for (command, shown) in blocks.filter_map(|block| block.split_once('\n')) {
        let args = words(command);
        assert_eq!(crate::text(&args.iter().map(String::as_str).collect::<Vec<_>>()), shown, "{command}");
        ran += 1;
    }
    assert!(ran > 0, "no output in the README");
}

/// Splits at spaces outside double quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in line.trim().chars() {
        match c {
            '"' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            _ => words.last_mut().expect("never empty").push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}
