//! What a message contains, as one number.

/// A number is exact in every reader of JSON up to here.
const EXACT: u64 = (1 << 53) - 1;

/// A hash of parts, the same on every machine: where they end counts.
pub fn content<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
    let add = |hash, part: &[u8]| {
        let hash = part.len().to_le_bytes().into_iter().fold(hash, step);
        part.iter().copied().fold(hash, step)
    };
    parts.into_iter().fold(0xCBF2_9CE4_8422_2325, add) & EXACT
}

#[cfg(test)]
mod tests {
    use super::content;

    #[test]
    fn it_differs_where_the_parts_differ() {
        let of = |parts: &[&str]| content(parts.iter().map(|part| part.as_bytes()));
        assert_eq!(of(&["a", "bc"]), of(&["a", "bc"]));
        for other in [&["ab", "c"][..], &["a", "bd"], &["a", "bc", ""], &["abc"]] {
            assert_ne!(of(&["a", "bc"]), of(other), "{other:?}");
        }
    }
}
