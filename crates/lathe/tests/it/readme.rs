//! Every `lathe ...` command in a shell block of the README works as written.

#[test]
fn readme_commands_run() {
    let readme = include_str!("../../../../README.md");
    let mut ran = 0;
    let blocks = readme.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    for line in blocks.flat_map(str::lines).filter(|line| line.starts_with("lathe ")) {
        let command = line.split(" #").next().unwrap_or_default();
        let args: Vec<String> = words(command).into_iter().skip(1).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        assert!(!crate::text(&args).is_empty(), "{line}");
        ran += 1;
    }
    assert!(ran >= 4, "{ran} commands in the README");
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
