//! What models that ship with their weights have learnt.

use lathe_model::shipped::{STORYTELLER, trained};
use lathe_train::data::{self, Tokenizer};
use lathe_train::evaluate::{Options, evaluate};

/// On text of the language that it has not seen, close to what it is listed with.
#[test]
fn the_storyteller_tells_stories() {
    let storyteller = trained(STORYTELLER).unwrap();
    let place = tempfile::tempdir().unwrap();
    let tokens = place.path().join("tokens");
    let tokens = data::encode_source(&storyteller.judged_on(), &Tokenizer::Bytes, &tokens, &|_, _, _| {}).unwrap();
    let options = Options { limit: 1 << 13, ..Options::new(&Tokenizer::Bytes) };
    let mut network = storyteller.network();
    network.freeze();
    let found = evaluate(&network, &tokens, &options, &mut |_, _| {}).unwrap().bits_per_byte;
    let listed = storyteller.bits_per_byte();
    assert!(
        (found / listed - 1.0).abs() < 0.1,
        "{found} bits per byte, {listed} of all of {}",
        storyteller.judged_on()
    );
}
