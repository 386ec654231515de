//! TOML: locations and syntax errors.

use super::{assert_errors, first_error, node_text};
use crate::source::{SourceFormat, parse};

#[test]
fn toml_values_have_locations_and_keep_their_order() {
    let text = "mode = \"off\"\n# é\n[[limits]]\nname = 'a'\nid = 1_000\nx.y = [true, 2.50]\n\n[fleet]\nnodes = 3\n";
    assert_eq!(
        node_text(&parse(text, SourceFormat::Toml).unwrap()),
        "{mode@1:1+4 \"off\"@1:8+5 limits@3:3+6 [{name@4:1+4 \"a\"@4:8+3 id@5:1+2 1_000@5:6+5 \
         x@6:1+1 {y@6:3+1 [true@6:8+4 2.50@6:14+4 ]@6:7+12 }@6:1+1 }@3:1+10 ]@3:1+10 \
         fleet@8:2+5 {nodes@9:1+5 3@9:9+1 }@8:1+7 }@1:1+1"
    );
}

#[test]
fn toml_errors_name_both_lines_of_a_duplicate() {
    assert_errors(
        SourceFormat::Toml,
        &[
            (
                "a = 1\nb = { rate = 1 }\nrate = 2\n\"rate\" = 3\n",
                "4:1+6 `rate` is given twice; first on line 3",
            ),
            (
                "[[limits]]\nrate = 1\n[[limits]]\nrate = 2\nrate = 3\n",
                "5:1+4 `rate` is given twice; first on line 4",
            ),
            (
                "[fleet]\nnodes = 1\n[fleet]\nnodes = 2\n",
                "3:2+5 `fleet` is given twice; first on line 1",
            ),
            ("rate = 10/s\n", "1:"),
            ("rate\n", "1:"),
            ("a = [1\n", "1:"),
        ],
    );
    for text in ["rate = 10/s\n", "rate\n", "a = [1\n"] {
        assert!(
            first_error(text, SourceFormat::Toml).contains("this is not valid TOML"),
            "{text}"
        );
    }
}
