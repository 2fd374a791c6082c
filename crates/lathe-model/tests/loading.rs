//! What loading a folder of integers takes: a process of its own, whose allocator counts.

use lathe_core::Spec;
use lathe_model::{Network, REGISTRY, folder};
use lathe_ops::allocator::{self, Counting};
use lathe_ops::integers::Format;
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

#[test]
fn integers_are_loaded_without_a_detour() {
    for format in ["int8", "int6_g64", "int4_g32", "int4_g32_offset"] {
        let toml = "backbone='llama'\nlayers='(sf)x2'\nd_model=128\nheads=2\ninner=512\nvocab=20000\nmax_len=32";
        let model = Spec::from_toml(toml, &REGISTRY).unwrap().model(&REGISTRY).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut network = Network::for_measuring(model, 0).unwrap();
        network.set_format(Format::parse(format).unwrap());
        folder::save(&network, dir.path()).unwrap();
        drop(network);
        let file = std::fs::metadata(dir.path().join("model.safetensors")).unwrap().len() as f64;
        let before = allocator::in_use();
        allocator::restart_peak();
        let mut network = folder::load(dir.path(), &REGISTRY).unwrap();
        network.freeze();
        let peak = (allocator::peak() - before) as f64;
        assert!(peak <= 1.3 * file, "{format}: {:.2} times the file", peak / file);
        assert!(peak > 0.9 * file, "{format}: the allocator counts");
    }
}
