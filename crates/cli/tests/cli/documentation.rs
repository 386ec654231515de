//! The documentation is correct: every policy in `docs/policy.md` loads, every test in it passes, and the commands there and in
//! the README print the output that is shown.

use crate::harness::{Folder, repository, run_output, tollgate};

/// One fenced block: its language and its text.
pub(crate) struct Block {
    pub(crate) language: String,
    pub(crate) text: String,
}

/// Every fenced block of a page.
pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for line in page.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(language), None) => {
                let language = language.to_owned();
                let text = String::new();
                open = Some(Block { language, text });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => {
                block.text += line;
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block does not end");
    blocks
}

/// The file name of a block: from its first line, or from its number.
fn file_name(block: &Block, number: usize) -> String {
    let first = block.text.lines().next().unwrap_or_default();
    match first
        .strip_prefix("# ")
        .filter(|name| name.ends_with(".yaml"))
    {
        Some(name) => name.to_owned(),
        None => format!("block-{number}.yaml"),
    }
}

/// The commands of a console block, each with the output that is shown.
pub(crate) fn commands(block: &Block) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    for line in block.text.lines() {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) => commands.push((command.to_owned(), String::new())),
            (None, Some((_, shown))) => {
                *shown += line;
                shown.push('\n');
            }
            (None, None) => panic!("no command prints {line:?}"),
        }
    }
    commands
}

/// Splits a command line into arguments. Arguments may have single quotes.
pub(crate) fn words(command: &str) -> Vec<String> {
    let quoted = command.split('\'').enumerate();
    quoted
        .flat_map(|(index, part)| match index % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        })
        .collect()
}

/// Runs the `tollgate` commands of a page and compares their output. Returns the number of commands.
fn run_commands(blocks: &[Block], folder: &std::path::Path) -> usize {
    let mut ran = 0;
    for (command, shown) in blocks
        .iter()
        .filter(|block| block.language == "console")
        .flat_map(commands)
    {
        if let Some(file) = command.strip_prefix("cat ") {
            std::fs::write(folder.join(file), shown).unwrap();
            continue;
        }
        let Some(arguments) = command.strip_prefix("tollgate ") else {
            continue;
        };
        let arguments = words(arguments);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut program = tollgate(&arguments);
        let (_, stdout, stderr) = run_output(program.current_dir(folder).output().unwrap());
        assert_eq!(format!("{stdout}{stderr}"), shown, "{command}");
        ran += 1;
    }
    ran
}

#[test]
fn every_policy_of_the_reference_loads_and_its_tests_pass() {
    let page = std::fs::read_to_string(repository().join("docs/policy.md")).unwrap();
    let blocks = blocks(&page);
    for block in &blocks {
        let known = ["yaml", "console"].contains(&block.language.as_str());
        assert!(known, "a block is marked as {:?}", block.language);
    }
    let folder = Folder::new();
    let policies = blocks.iter().filter(|block| block.language == "yaml");
    let mut names: Vec<String> = Vec::new();
    for (number, block) in policies.enumerate() {
        let name = file_name(block, number);
        assert!(!names.contains(&name), "{name} occurs twice");
        folder.write(&name, block.text.as_bytes());
        names.push(name);
    }
    // Cross-check: the page has as many lines that open a YAML block.
    assert_eq!(names.len(), page.matches("\n```yaml\n").count());
    assert!(names.len() >= 15, "{names:?}");
    let files = |command: &'static str, names: Vec<&String>| {
        let all: Vec<&str> = [command]
            .into_iter()
            .chain(names.into_iter().map(String::as_str))
            .collect();
        folder.run(&all)
    };
    let (code, stdout, stderr) = files("check", names.iter().collect());
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    let tests: Vec<&String> = names
        .iter()
        .filter(|name| name.contains(".test."))
        .collect();
    assert!(tests.len() >= 4, "{tests:?}");
    let (code, stdout, _) = files("test", tests);
    assert_eq!(code, Some(0), "{stdout}");
    assert!(run_commands(&blocks, folder.path()) >= 3);
}

#[test]
fn commands_of_the_readme_print_what_it_shows() {
    let page = std::fs::read_to_string(repository().join("README.md")).unwrap();
    assert!(run_commands(&blocks(&page), &repository()) >= 3);
}

#[test]
fn control_blocks_are_found_and_commands_compared() {
    let page = "a\n```yaml\n# a.yaml\nlimits: 7\n```\nb\n```console\n$ tollgate --version\ntollgate 0\n```\n";
    let blocks = blocks(page);
    assert_eq!(blocks.len(), 2);
    assert_eq!(file_name(&blocks[0], 0), "a.yaml");
    assert_eq!(
        words("explain 'a b' -H 'c: d' e"),
        ["explain", "a b", "-H", "c: d", "e"]
    );
    let folder = Folder::new();
    let compared = std::panic::catch_unwind(|| run_commands(&blocks, folder.path()));
    assert!(
        compared.is_err(),
        "the page shows another version than the program prints"
    );
    folder.write("a.yaml", blocks[0].text.as_bytes());
    assert_eq!(folder.run(&["check", "a.yaml"]).0, Some(1));
}
