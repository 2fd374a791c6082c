//! The server on a free port of this machine, with tiny models and fresh weights, asked by a client that knows nothing
//! but HTTP. Nothing here sleeps or looks at a clock: tests wait for what the server says.

mod api;
mod client;
mod hostile;
mod load;

use client::Client;
use lathe_core::Spec;
use lathe_model::{Network, REGISTRY};
use lathe_serve::{Served, Settings, serve};
use lathe_text::Tokenizer;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread::JoinHandle;

/// What the conversations of the tests look like.
const TEMPLATE: &str = "{% for message in messages %}<{{ message.role }}>{{ message['content'].strip() }}\n{% endfor %}\
                        {% if add_generation_prompt %}<assistant>{% endif %}";

/// A tiny model of bytes, with room for so many tokens.
fn network(backbone: &str, max_len: u32) -> Network {
    let vocab = if backbone == "bert" { 257 } else { 256 };
    let lengths =
        if backbone == "transformer_xl" { "mem_len=32\ntgt_len=32".into() } else { format!("max_len={max_len}") };
    let toml =
        format!("backbone='{backbone}'\nlayers='(sf)x2'\nd_model=16\nheads=2\ninner=32\nvocab={vocab}\n{lengths}");
    let model = Spec::from_toml(&toml, &REGISTRY).and_then(|spec| spec.model(&REGISTRY)).unwrap();
    let mut network = Network::new(model, 7).unwrap();
    // Fresh weights are so small that all tokens are alike.
    network.params_mut().for_each(|param| param.data.iter_mut().for_each(|x| *x *= 6.0));
    network
}

struct Server {
    address: SocketAddr,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(backbone: &str, max_len: u32, settings: Settings) -> Self {
        let mut network = network(backbone, max_len);
        network.freeze();
        let template = (backbone != "bert").then(|| TEMPLATE.to_string());
        let served = Served::new("tiny".into(), network, Tokenizer::Bytes, template).unwrap();
        let settings = Settings { address: SocketAddr::from(([127, 0, 0, 1], 0)), ..settings };
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (ready, address) = mpsc::channel();
        let run = move || {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
            let stopped = async { drop(stopped.await) };
            pool.install(|| serve(served, settings, |address| ready.send(address).unwrap(), stopped)).unwrap();
        };
        let thread = std::thread::spawn(run);
        Self { address: address.recv().unwrap(), stop: Some(stop), thread: Some(thread) }
    }

    fn client(&self) -> Client {
        Client::new(self.address)
    }

    /// Tells the server to end.
    fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits until it has ended.
    fn join(&mut self) {
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
