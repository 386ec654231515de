//! Products of any size, as on paper: digits and carries.

use core::cmp::Ordering;

/// Compares two products of whole numbers, however large they become.
#[must_use]
pub fn compare_products(left: &[u64], right: &[u64]) -> Ordering {
    let (mut left, mut right) = (digits(left), digits(right));
    let length = left.len().max(right.len());
    left.resize(length, 0);
    right.resize(length, 0);
    left.iter().rev().cmp(right.iter().rev())
}

/// The product's digits to the base 2^32, lowest first.
fn digits(factors: &[u64]) -> Vec<u64> {
    let mut product = vec![1];
    for factor in factors {
        let (low, high) = (factor & 0xffff_ffff, factor >> 32);
        let mut next = vec![0_u64; product.len() + 3];
        for (shift, part) in [(0, low), (1, high)] {
            for (place, digit) in product.iter().enumerate() {
                let mut carry = digit * part;
                for place in next.iter_mut().skip(place + shift) {
                    let sum = *place + (carry & 0xffff_ffff);
                    *place = sum & 0xffff_ffff;
                    carry = (carry >> 32) + (sum >> 32);
                }
            }
        }
        product = next;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_beyond_128_bits_compare() {
        let most = u64::MAX;
        assert_eq!(
            compare_products(&[most, most, most], &[most, most, most - 1]),
            Ordering::Greater
        );
        assert_eq!(compare_products(&[6, 35], &[10, 21]), Ordering::Equal);
        assert_eq!(compare_products(&[most, 2], &[most, 3]), Ordering::Less);
        assert_eq!(compare_products(&[0, most], &[1]), Ordering::Less);
    }
}
