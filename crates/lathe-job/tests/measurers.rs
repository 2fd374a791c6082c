//! Every measurer keeps its promises. This program is its own child that measures.

use lathe_job::measurer::{CHILD, ChildProcess, MEASURERS, Measurer, Request, conformance, serve_child};
use lathe_model::{REGISTRY, shipped};
use lathe_ops::allocator::Counting;
use lathe_search::workload::Workload;
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

fn main() {
    serve_child(&REGISTRY);
    for entry in MEASURERS {
        let measurer = (entry.new)(&REGISTRY).expect("a measurer");
        conformance(&*measurer, &REGISTRY);
        println!("{}: {} ... ok", entry.name, entry.about);
    }
    processes_that_do_not_measure();
    println!("processes that do not measure ... ok");
}

fn processes_that_do_not_measure() {
    let model = shipped::find(shipped::MODELS, "small_gpt2").expect("a model that ships");
    let model = model.spec().and_then(|spec| spec.model(&REGISTRY)).expect("a good model");
    let workload = Workload::default();
    let request = Request::new(&model, &workload, 0.01);
    let fails = |measurer: &ChildProcess, word: &str| {
        let error = measurer.measure(&request).expect_err("no measurement");
        assert!(error.to_string().contains(word) && !error.is_usage(), "{error}");
    };
    let here = ChildProcess::of_this_program().expect("a path");
    fails(&ChildProcess { program: "no/such/program".into(), ..here.clone() }, "did not start: no/such/program");
    let shell = |script: &str| ChildProcess {
        program: "/bin/sh".into(),
        args: vec!["-c".into(), script.into()],
        ..here.clone()
    };
    fails(&shell("exit 3"), "ended with exit status: 3");
    fails(&shell("cat >/dev/null; echo hello"), "answered what is no measurement");
    // The variable is set, and so are those that are asked for.
    let told = format!("cat >/dev/null; printf '{{\"failed\": \"%s %s\"}}' \"${CHILD}\" \"$MORE\"");
    let with = ChildProcess { env: vec![("MORE".into(), "too".into())], ..shell(&told) };
    fails(&with, "failed: 1 too");
}
