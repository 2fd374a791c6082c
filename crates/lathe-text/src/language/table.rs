//! A weighted list of words of which none is a prefix of another, and the exact chances of its bytes.
//!
//! Once the bytes so far match the words in a set S, the next byte is b with
//! P(b) = mass of the words in S that go on with b / mass of S. The words form a trie, whose nodes are those sets, so
//! that all of this is looked up. Where the text has settled which word is due, that word gets `SURE - 1` times the
//! mass of the whole list on top of its own; only the nodes on its path then differ from the plain trie, and they too
//! are computed beforehand.

use rand::Rng;

/// A word that the text or a fact makes due comes with chance (SURE - 1) / SURE; else any word of its list is drawn.
pub const SURE: u64 = 128;

#[derive(Debug)]
pub(super) struct WordTrie {
    words: Vec<Box<str>>,
    /// `ends[i]`: mass of the words up to and with i.
    ends: Vec<u64>,
    nodes: Vec<Node>,
    /// The edges of all nodes, those of a node together.
    edges: Vec<Edge>,
    /// Per word, per byte of it: as it is when the word is due.
    due: Vec<Box<[Step]>>,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    first: u32,
    count: u32,
    mass: u64,
    entropy: f64,
}

#[derive(Debug, Clone, Copy)]
struct Edge {
    byte: u8,
    mass: u64,
    bits: f64,
    to: To,
}

#[derive(Debug, Clone, Copy)]
enum To {
    Node(u32),
    Word(u32),
}

#[derive(Debug, Clone, Copy)]
struct Step {
    byte: u8,
    bits: f64,
    entropy: f64,
}

/// How far into a word of the table a text is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor {
    node: u32,
    depth: u32,
    /// The word that is due, while the bytes so far are its own.
    due: Option<u32>,
}

/// A byte that was accepted.
pub(super) struct Taken {
    pub bits: f64,
    pub entropy: f64,
    /// The word that it completed.
    pub word: Option<usize>,
}

impl WordTrie {
    /// A table of words with their weights; `Err` names two words of which one is a prefix of the other.
    pub fn new(words: impl IntoIterator<Item = (String, u64)>) -> Result<Self, String> {
        let mut words: Vec<(String, u64)> = words.into_iter().collect();
        // Sorted, the words of a node stand together, and a prefix stands right before what it begins.
        words.sort();
        if words.is_empty() || words[0].0.is_empty() || words.iter().any(|w| w.1 == 0) {
            return Err("no words, an empty one, or one of weight 0".into());
        }
        if let Some(pair) = words.windows(2).find(|pair| pair[1].0.starts_with(&pair[0].0)) {
            return Err(format!("\"{}\" begins \"{}\"", pair[0].0, pair[1].0));
        }
        let mut mass = 0;
        let ends: Vec<u64> = words
            .iter()
            .map(|word| {
                mass += word.1;
                mass
            })
            .collect();
        let words = words.into_iter().map(|word| word.0.into_boxed_str()).collect();
        let mut table = Self { words, ends, nodes: Vec::new(), edges: Vec::new(), due: Vec::new() };
        table.add_node(0, table.words.len(), 0);
        table.due = (0..table.words.len()).map(|word| table.path(word)).collect();
        Ok(table)
    }

    /// The node of words `from..to`, which agree in their first `depth` bytes.
    fn add_node(&mut self, from: usize, to: usize, depth: usize) -> u32 {
        let groups: Vec<(u8, usize, usize)> = {
            let byte = |word: usize| self.words[word].as_bytes()[depth];
            let starts: Vec<usize> = (from..to).filter(|&w| w == from || byte(w) != byte(w - 1)).collect();
            let ends = starts.iter().skip(1).copied().chain([to]);
            starts.iter().zip(ends).map(|(&start, end)| (byte(start), start, end)).collect()
        };
        let mass = self.mass(from, to);
        let chances = groups.iter().map(|&(_, start, end)| self.mass(start, end) as f64 / mass as f64);
        let entropy = chances.map(|p| -p * p.log2()).sum::<f64>().max(0.0);

        let node = self.nodes.len() as u32;
        let first = self.edges.len();
        self.nodes.push(Node { first: first as u32, count: groups.len() as u32, mass, entropy });
        for &(byte, start, end) in &groups {
            let part = self.mass(start, end);
            self.edges.push(Edge { byte, mass: part, bits: bits(part, mass), to: To::Word(start as u32) });
        }
        for (edge, (_, start, end)) in (first..).zip(groups) {
            if end - start > 1 || self.words[start].len() > depth + 1 {
                self.edges[edge].to = To::Node(self.add_node(start, end, depth + 1));
            }
        }
        node
    }

    /// What each byte of a word costs, and the entropy before it, when the word is due.
    fn path(&self, word: usize) -> Box<[Step]> {
        let extra = self.extra();
        let mut node = 0;
        let mut steps = Vec::with_capacity(self.words[word].len());
        for &byte in self.words[word].as_bytes() {
            let at = self.nodes[node as usize];
            let mass = (at.mass + extra) as f64;
            let mut step = Step { byte, bits: 0.0, entropy: 0.0 };
            for edge in self.edges(at) {
                let part = edge.mass + if edge.byte == byte { extra } else { 0 };
                let p = part as f64 / mass;
                step.entropy -= p * p.log2();
                if edge.byte == byte {
                    step.bits = bits(part, at.mass + extra);
                    if let To::Node(next) = edge.to {
                        node = next;
                    }
                }
            }
            step.entropy = step.entropy.max(0.0);
            steps.push(step);
        }
        steps.into()
    }

    fn mass(&self, from: usize, to: usize) -> u64 {
        self.ends[to - 1] - if from == 0 { 0 } else { self.ends[from - 1] }
    }

    /// What a due word weighs on top of its own weight.
    fn extra(&self) -> u64 {
        self.total() * (SURE - 1)
    }

    fn total(&self) -> u64 {
        self.ends[self.ends.len() - 1]
    }

    fn edges(&self, node: Node) -> &[Edge] {
        &self.edges[node.first as usize..][..node.count as usize]
    }

    /// The words, sorted.
    pub fn words(&self) -> &[Box<str>] {
        &self.words
    }

    /// Draws a word.
    pub fn draw(&self, due: Option<usize>, rng: &mut impl Rng) -> usize {
        if self.words.len() == 1 {
            return 0;
        }
        let r = match due {
            None => below(self.total(), rng),
            Some(word) => match below(self.total() * SURE, rng).checked_sub(self.extra()) {
                None => return word,
                Some(r) => r,
            },
        };
        self.ends.partition_point(|&end| end <= r)
    }

    /// Before the first byte of a word.
    pub fn start(&self, due: Option<usize>) -> Cursor {
        Cursor { node: 0, depth: 0, due: due.map(|word| word as u32) }
    }

    /// Takes the next byte; `None`, and the cursor as it was, if no word goes on with it.
    pub fn take(&self, cursor: &mut Cursor, byte: u8) -> Option<Taken> {
        let node = self.nodes[cursor.node as usize];
        let edge = self.edges(node).iter().find(|edge| edge.byte == byte)?;
        let (bits, entropy) = match cursor.due {
            None => (edge.bits, node.entropy),
            Some(word) => {
                let step = self.due[word as usize][cursor.depth as usize];
                if step.byte == byte {
                    (step.bits, step.entropy)
                } else {
                    cursor.due = None;
                    (bits(edge.mass, node.mass + self.extra()), step.entropy)
                }
            }
        };
        cursor.depth += 1;
        let word = match edge.to {
            To::Node(next) => {
                cursor.node = next;
                None
            }
            To::Word(word) => Some(word as usize),
        };
        Some(Taken { bits, entropy, word })
    }

    /// The bytes that may come next, with their chances.
    pub fn chances(&self, cursor: &Cursor) -> impl Iterator<Item = (u8, f64)> {
        let node = self.nodes[cursor.node as usize];
        let due = cursor.due.map(|word| self.due[word as usize][cursor.depth as usize].byte);
        let extra = if due.is_some() { self.extra() } else { 0 };
        self.edges(node).iter().map(move |edge| {
            let part = edge.mass + if due == Some(edge.byte) { extra } else { 0 };
            (edge.byte, part as f64 / (node.mass + extra) as f64)
        })
    }
}

/// -log2(part / whole); 0, not -0, for the whole.
fn bits(part: u64, whole: u64) -> f64 {
    (whole as f64 / part as f64).log2()
}

/// A number in 0..n, each equally likely: Lemire's multiplication, which throws a draw away where it would be unfair.
/// Written out, so that no change of a library changes the text of a seed.
pub(super) fn below(n: u64, rng: &mut impl Rng) -> u64 {
    loop {
        let wide = u128::from(rng.next_u64()) * u128::from(n);
        let low = wide as u64;
        if low >= n || low >= n.wrapping_neg() % n {
            return (wide >> 64) as u64;
        }
    }
}
