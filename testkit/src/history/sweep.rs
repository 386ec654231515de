//! A row of numbers to whose beginnings something is added, and the largest of a beginning: each in logarithmic time.
//!
//! This is what the sweep over windows needs: a start is a place, its number what was admitted since. Must not know: records.

/// A tree over the row; each node has the largest number below it and what was added to all of them.
#[derive(Debug)]
pub(super) struct Row {
    length: usize,
    nodes: Vec<Node>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    largest: i128,
    added: i128,
}

impl Row {
    pub(super) fn of(numbers: &[i128]) -> Self {
        let length = numbers.len().next_power_of_two();
        let empty = Node {
            // So small that nothing that is added makes it the largest.
            largest: i128::MIN / 2,
            added: 0,
        };
        let mut row = Self {
            length,
            nodes: vec![empty; length * 2],
        };
        for (place, number) in numbers.iter().enumerate() {
            if let Some(leaf) = row.nodes.get_mut(length + place) {
                leaf.largest = *number;
            }
        }
        for node in (1..length).rev() {
            row.renew(node);
        }
        row
    }

    /// Adds to the first `count` numbers.
    pub(super) fn add(&mut self, count: usize, amount: i128) {
        self.add_below(1, 0, self.length, count, amount);
    }

    /// The largest of the first `count` numbers.
    pub(super) fn largest(&self, count: usize) -> i128 {
        self.largest_below(1, 0, self.length, count)
    }

    fn add_below(&mut self, node: usize, from: usize, to: usize, count: usize, amount: i128) {
        if from >= count {
            return;
        }
        if to <= count {
            if let Some(node) = self.nodes.get_mut(node) {
                node.largest += amount;
                node.added += amount;
            }
            return;
        }
        let middle = from.midpoint(to);
        self.add_below(node * 2, from, middle, count, amount);
        self.add_below(node * 2 + 1, middle, to, count, amount);
        self.renew(node);
    }

    fn largest_below(&self, node: usize, from: usize, to: usize, count: usize) -> i128 {
        let this = self.node(node);
        if from >= count {
            return i128::MIN / 2;
        }
        if to <= count {
            return this.largest;
        }
        let middle = from.midpoint(to);
        let left = self.largest_below(node * 2, from, middle, count);
        let right = self.largest_below(node * 2 + 1, middle, to, count);
        left.max(right) + this.added
    }

    fn renew(&mut self, node: usize) {
        let below = self
            .node(node * 2)
            .largest
            .max(self.node(node * 2 + 1).largest);
        if let Some(node) = self.nodes.get_mut(node) {
            node.largest = below + node.added;
        }
    }

    fn node(&self, node: usize) -> Node {
        let none = Node {
            largest: i128::MIN / 2,
            added: 0,
        };
        self.nodes.get(node).copied().unwrap_or(none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeded_rng::SeededRng;

    #[test]
    fn it_says_what_a_plain_row_says() {
        let mut dice = SeededRng::new(3);
        for length in [1, 2, 3, 7, 8, 9, 100] {
            let mut plain: Vec<i128> = (0..length).map(|_| i128::from(dice.below(100))).collect();
            let mut row = Row::of(&plain);
            for _ in 0..200 {
                let count = usize::try_from(dice.below(length + 1)).unwrap();
                let amount = i128::from(dice.below(50)) - 25;
                row.add(count, amount);
                plain.iter_mut().take(count).for_each(|n| *n += amount);
                let count = usize::try_from(dice.below(length) + 1).unwrap();
                let largest = plain.iter().take(count).max().copied();
                assert_eq!(Some(row.largest(count)), largest);
            }
        }
    }
}
