//! Converts byte offsets to lines and columns.
//!
//! Must not know: formats.

use std::ops::Range;

use super::node::SourceLocation;

/// Characters are counted per stride of this many bytes, so that finding a column is fast even in one long line.
const STRIDE: usize = 256;

/// The starts of the lines of a text.
#[derive(Debug)]
pub(crate) struct LineIndex<'a> {
    text: &'a str,
    /// The offset of the first byte of each line, in order; the first is zero.
    starts: Vec<usize>,
    /// The number of characters before each multiple of [`STRIDE`].
    character_counts: Vec<usize>,
}

/// Whether a byte of UTF-8 begins a character.
const fn begins_character(byte: u8) -> bool {
    byte & 0b1100_0000 != 0b1000_0000
}

fn count(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| begins_character(**byte)).count()
}

/// Converts a line or column number. Texts are far shorter than 4 GB.
fn to_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl<'a> LineIndex<'a> {
    /// Finds the lines. `\n`, `\r\n` and a lone `\r` end a line.
    pub(crate) fn new(text: &'a str) -> Self {
        let bytes = text.as_bytes();
        let mut starts = vec![0];
        for (at, byte) in bytes.iter().enumerate() {
            let ends = match byte {
                b'\n' => true,
                b'\r' => bytes.get(at + 1) != Some(&b'\n'),
                _ => false,
            };
            if ends {
                starts.push(at + 1);
            }
        }
        let mut before = 0;
        let mut characters = vec![0];
        for chunk in bytes.chunks(STRIDE) {
            before += count(chunk);
            characters.push(before);
        }
        Self {
            text,
            starts,
            character_counts: characters,
        }
    }

    /// The number of characters before this offset.
    fn characters_before(&self, offset: usize) -> usize {
        let stride = offset / STRIDE;
        let whole = self
            .character_counts
            .get(stride)
            .copied()
            .unwrap_or_default();
        let rest = self.text.as_bytes().get(stride * STRIDE..offset);
        whole + rest.map_or(0, count)
    }

    /// The index of the line with this offset.
    fn index(&self, offset: usize) -> usize {
        self.starts
            .partition_point(|start| *start <= offset)
            .saturating_sub(1)
    }

    /// The bytes of a line by its zero-based index, without the line end.
    fn range(&self, index: usize) -> Range<usize> {
        let start = self.starts.get(index).copied().unwrap_or(self.text.len());
        let end = self
            .starts
            .get(index + 1)
            .copied()
            .unwrap_or(self.text.len());
        let line = self.text.get(start..end).unwrap_or_default();
        start..start + line.trim_end_matches(['\n', '\r']).len()
    }

    /// The location of these bytes. A range over several lines is truncated to its first line.
    pub(crate) fn locate(&self, bytes: Range<usize>) -> SourceLocation {
        let start = bytes.start.min(self.text.len());
        let index = self.index(start);
        let line = self.range(index);
        // The `\n` of `\r\n` is located at the end of its line.
        let start = start.min(line.end);
        let end = bytes.end.min(line.end).max(start);
        let first = self.characters_before(start);
        let column = first - self.characters_before(line.start).min(first);
        let width = self.characters_before(end).saturating_sub(first);
        SourceLocation {
            line: to_u32(index + 1),
            column: to_u32(column + 1),
            width: to_u32(width.max(1)),
        }
    }

    /// The text of a line by its number, which begins at 1.
    pub(crate) fn line(&self, number: u32) -> Option<&'a str> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        if index >= self.starts.len() {
            return None;
        }
        self.text.get(self.range(index))
    }
}

#[cfg(test)]
mod tests {
    use super::{LineIndex, SourceLocation};

    fn location(line: u32, column: u32, width: u32) -> SourceLocation {
        SourceLocation {
            line,
            column,
            width,
        }
    }

    #[test]
    fn every_kind_of_line_end_counts_once() {
        let lines = LineIndex::new("a\nb\r\nc\rd\n");
        for (offset, line) in [(0, 1), (2, 2), (5, 3), (7, 4), (9, 5)] {
            assert_eq!(lines.locate(offset..offset + 1).line, line, "at {offset}");
            assert_eq!(lines.locate(offset..offset + 1).column, 1, "at {offset}");
        }
        let lines_text: Vec<_> = (1..=6).map(|number| lines.line(number)).collect();
        assert_eq!(
            lines_text,
            [Some("a"), Some("b"), Some("c"), Some("d"), Some(""), None]
        );
    }

    #[test]
    fn columns_and_widths_count_characters_not_bytes() {
        let text = "é€😀x: ü\n";
        let lines = LineIndex::new(text);
        let x = text.find('x').unwrap();
        assert_eq!(lines.locate(x..x + 1), location(1, 4, 1));
        assert_eq!(lines.locate(0..x), location(1, 1, 3));
    }

    #[test]
    fn columns_of_a_long_line_are_right_beyond_every_stride() {
        let text = "é".repeat(1_000);
        let lines = LineIndex::new(&text);
        for character in 0..1_000_u32 {
            let offset = usize::try_from(character).unwrap() * 2;
            assert_eq!(
                lines.locate(offset..offset + 2),
                location(1, character + 1, 1)
            );
        }
    }

    #[test]
    fn a_range_over_several_lines_is_truncated_to_the_first_line() {
        let lines = LineIndex::new("abc\r\ndef\n");
        assert_eq!(lines.locate(1..8), location(1, 2, 2));
        // Both bytes of the line end are located at the end of the line.
        assert_eq!(lines.locate(3..4), location(1, 4, 1));
        assert_eq!(lines.locate(4..5), location(1, 4, 1));
    }

    #[test]
    fn offsets_at_the_end_of_the_text_and_beyond_have_a_location() {
        let lines = LineIndex::new("ab");
        assert_eq!(lines.locate(2..2), location(1, 3, 1));
        assert_eq!(lines.locate(70..90), location(1, 3, 1));
        assert_eq!(LineIndex::new("").locate(0..0), location(1, 1, 1));
    }
}
