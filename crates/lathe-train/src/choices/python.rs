//! Python's `random.Random(seed).sample`, by which lm-eval draws the examples that it shows: the Mersenne Twister MT19937
//! (Matsumoto & Nishimura, 1998), seeded by an array of one number.

/// Numbers of the state, and the distance of those that are mixed.
const N: usize = 624;
const M: usize = 397;
/// With so few to draw two from, Python's `sample` takes them out of a list; else it draws until they differ.
const FEW: usize = 21;

/// A generator.
pub(super) struct Random {
    state: [u32; N],
    next: usize,
}

impl Random {
    /// As Python's `Random(seed)`.
    pub fn new(seed: u32) -> Self {
        let mut state = [0u32; N];
        state[0] = 19_650_218;
        for i in 1..N {
            state[i] = mixed(state[i - 1]).wrapping_mul(1_812_433_253).wrapping_add(i as u32);
        }
        let mut i = 1;
        for _ in 0..N {
            state[i] = (state[i] ^ mixed(state[i - 1]).wrapping_mul(1_664_525)).wrapping_add(seed);
            i = after(&mut state, i);
        }
        for _ in 0..N - 1 {
            state[i] = (state[i] ^ mixed(state[i - 1]).wrapping_mul(1_566_083_941)).wrapping_sub(i as u32);
            i = after(&mut state, i);
        }
        state[0] = 1 << 31;
        Self { state, next: N }
    }

    /// As `sample(range(n), 2)`; n is at least 2.
    pub fn two_of(&mut self, n: usize) -> [usize; 2] {
        let first = self.below(n);
        if n <= FEW {
            // The last takes the place of the one that is gone.
            let second = self.below(n - 1);
            return [first, if second == first { n - 1 } else { second }];
        }
        loop {
            let second = self.below(n);
            if second != first {
                return [first, second];
            }
        }
    }

    /// A number below n, as `_randbelow(n)`; n is at least 1 and below 2^32.
    pub fn below(&mut self, n: usize) -> usize {
        let bits = usize::BITS - n.leading_zeros();
        loop {
            let number = (u64::from(self.number()) >> (32 - bits)) as usize;
            if number < n {
                return number;
            }
        }
    }

    fn number(&mut self) -> u32 {
        if self.next == N {
            for i in 0..N {
                let y = self.state[i] & 1 << 31 | self.state[(i + 1) % N] & !(1 << 31);
                let odd = if y % 2 == 1 { 0x9908_b0df } else { 0 };
                self.state[i] = self.state[(i + M) % N] ^ y >> 1 ^ odd;
            }
            self.next = 0;
        }
        let mut y = self.state[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= y << 7 & 0x9d2c_5680;
        y ^= y << 15 & 0xefc6_0000;
        y ^ y >> 18
    }
}

fn mixed(x: u32) -> u32 {
    x ^ x >> 30
}

/// The next place of a state that is being seeded.
fn after(state: &mut [u32; N], i: usize) -> usize {
    if i + 1 < N {
        return i + 1;
    }
    state[0] = state[N - 1];
    1
}
