//! Who asks, and in which order: keys and sequences of requests, made before any clock starts.
//!
//! Must not know: limiters, time.

/// Bytes of a key in the studies of speed.
pub(crate) const KEY_LEN: usize = 12;

/// A small generator with a fixed seed (splitmix64): every contender, and every run, sees the same requests.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `count`, which is far below 2^32, so that the bias is too small to matter.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        let product = u128::from(self.next()) * count as u128;
        usize::try_from(product >> 64).unwrap_or(0)
    }

    /// A number from 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The key of a number, twelve letters and digits.
pub(crate) fn key(number: usize) -> [u8; KEY_LEN] {
    let mut key = *b"user00000000";
    let mut rest = number;
    for digit in key.iter_mut().skip(4).rev() {
        *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
    }
    key
}

/// Requests in order. The same keys three times, each in the form that somebody needs, so that nobody converts while
/// the clock runs and everybody reads sequentially.
pub(crate) struct Requests {
    /// One flat buffer.
    pub(crate) flat: Vec<[u8; KEY_LEN]>,
    /// The same as text.
    text: String,
    /// The same as strings of their own: governor looks a `String` key up by `&String`.
    pub(crate) owned: Vec<String>,
}

impl Requests {
    pub(crate) fn new(numbers: impl Iterator<Item = usize>) -> Self {
        let flat: Vec<_> = numbers.map(key).collect();
        let text: String = flat.iter().map(text_of).collect();
        let owned = flat.iter().map(|key| text_of(key).to_owned()).collect();
        Self { flat, text, owned }
    }

    pub(crate) const fn len(&self) -> usize {
        self.flat.len()
    }

    /// The keys as slices of one long text.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|index| &self.text[index * KEY_LEN..(index + 1) * KEY_LEN])
    }
}

fn text_of(key: &[u8; KEY_LEN]) -> &str {
    std::str::from_utf8(key).unwrap_or_default()
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// Always the same key.
    Hot,
    /// The key of rank r with a probability in proportion to 1/r (s = 1).
    Zipf(usize),
    /// Every key as often as every other.
    Uniform(usize),
}

impl Pattern {
    pub(crate) fn name(self) -> String {
        match self {
            Self::Hot => "one hot key".to_owned(),
            Self::Zipf(keys) => format!("{} k keys, zipf", keys / 1_000),
            Self::Uniform(keys) => format!("{} k keys, uniform", keys / 1_000),
        }
    }

    pub(crate) const fn keys(self) -> usize {
        match self {
            Self::Hot => 1,
            Self::Zipf(keys) | Self::Uniform(keys) => keys,
        }
    }

    /// Every key once, for warming up.
    pub(crate) fn everybody(self) -> Requests {
        Requests::new(0..self.keys())
    }

    pub(crate) fn requests(self, count: usize, seed: u64) -> Requests {
        let mut random = Random::seeded(seed);
        match self {
            Self::Hot => Requests::new(std::iter::repeat_n(0, count)),
            Self::Uniform(keys) => Requests::new((0..count).map(|_| random.below(keys))),
            Self::Zipf(keys) => {
                let shares = zipf_shares(keys);
                // Ranks are scattered over the numbers, so that neighbours in popularity are not neighbours by name.
                let place = |rank: usize| rank.wrapping_mul(61_803) % keys;
                Requests::new((0..count).map(|_| {
                    let unit = random.unit();
                    place(shares.partition_point(|share| *share < unit).min(keys - 1))
                }))
            }
        }
    }
}

/// The share of all requests that the first rank, the first two, the first three … have.
#[expect(clippy::cast_precision_loss, reason = "ranks are small")]
fn zipf_shares(keys: usize) -> Vec<f64> {
    let mut sum = 0.0;
    let mut shares: Vec<f64> = (1..=keys)
        .map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        })
        .collect();
    shares.iter_mut().for_each(|share| *share /= sum);
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_twelve_bytes_and_different() {
        assert_eq!(&key(42), b"user00000042");
        assert_ne!(key(1), key(10));
    }

    #[test]
    fn the_first_rank_of_a_hundred_thousand_has_a_twelfth_of_the_requests() {
        let first = zipf_shares(100_000)[0];
        assert!((first - 0.0827).abs() < 0.001, "{first}");
        let requests = Pattern::Zipf(100_000).requests(100_000, 1);
        let hits = requests.flat.iter().filter(|k| **k == key(0)).count();
        assert!((7_500..9_100).contains(&hits), "{hits}");
        assert_eq!(
            requests.texts().next().map(str::as_bytes),
            requests.flat.first().map(|k| &k[..])
        );
    }

    #[test]
    fn scattering_ranks_gives_every_key_one() {
        let mut places: Vec<_> = (0..100_000)
            .map(|rank: usize| rank.wrapping_mul(61_803) % 100_000)
            .collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 100_000);
    }
}
