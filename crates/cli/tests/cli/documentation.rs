//! What is documented is so: every policy of the guide loads, every test in it passes, and commands print what they are
//! shown to print, there and in the README.

use crate::harness::{Folder, repository, run_output, tollgate};

/// One fenced block: what it is marked as, and what it says.
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

/// The file that a block is, by its first line, or by its number.
fn name_of(block: &Block, number: usize) -> String {
    let first = block.text.lines().next().unwrap_or_default();
    match first
        .strip_prefix("# ")
        .filter(|name| name.ends_with(".yaml"))
    {
        Some(name) => name.to_owned(),
        None => format!("block-{number}.yaml"),
    }
}

/// The commands of a console block, each with what it is shown to print.
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

/// The words of a command line, of which some may stand in single quotes.
pub(crate) fn words(command: &str) -> Vec<String> {
    let quoted = command.split('\'').enumerate();
    quoted
        .flat_map(|(index, part)| match index % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        })
        .collect()
}

/// Runs the commands of ours that a page shows, and compares. Answers how many there were.
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

/// Pages whose `tollgate` commands are run in a folder with all policies of the guide.
const WITH_COMMANDS: [&str; 3] = ["docs/start.md", "docs/policies.md", "docs/policy-tests.md"];

/// All pages of the guide, by their paths, and the README.
fn pages() -> Vec<(String, String)> {
    let folder = std::fs::read_dir(repository().join("docs")).unwrap();
    let names = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let pages = names.filter(|name| name.ends_with(".md"));
    let mut paths: Vec<String> = pages.map(|name| format!("docs/{name}")).collect();
    paths.push("README.md".to_owned());
    paths.sort();
    let read = |path: &String| std::fs::read_to_string(repository().join(path)).unwrap();
    paths
        .iter()
        .map(|path| (path.clone(), read(path)))
        .collect()
}

/// Whether a block is a policy or a file of tests, and not the configuration of another program.
fn is_policy(block: &Block) -> bool {
    let begins = |line: &str| {
        ["limits:", "deny:", "domain:", "tests:"]
            .iter()
            .any(|key| line.starts_with(key))
    };
    block.language == "yaml" && block.text.lines().any(begins)
}

#[test]
fn every_policy_of_the_guide_loads_and_its_tests_pass() {
    let pages = pages();
    let folder = Folder::new();
    let mut names: Vec<String> = Vec::new();
    for (path, page) in &pages {
        for block in blocks(page).iter().filter(|block| is_policy(block)) {
            let name = name_of(block, names.len());
            assert!(!names.contains(&name), "{path}: {name} stands there twice");
            folder.write(&name, block.text.as_bytes());
            names.push(name);
        }
    }
    // However blocks are found, there are as many as pages have lines that open the list of limits or tests.
    let opens = |(_, page): &(String, String)| {
        page.matches("\nlimits:\n").count() + page.matches("\ntests:\n").count()
    };
    assert!(names.len() >= pages.iter().map(opens).sum(), "{names:?}");
    assert!(names.len() >= 24, "{names:?}");
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
    assert!(tests.len() >= 6, "{tests:?}");
    let (code, stdout, _) = files("test", tests);
    assert_eq!(code, Some(0), "{stdout}");
    for (path, page) in pages
        .iter()
        .filter(|(path, _)| WITH_COMMANDS.contains(&path.as_str()))
    {
        assert!(run_commands(&blocks(page), folder.path()) >= 1, "{path}");
    }
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
    assert_eq!(name_of(&blocks[0], 0), "a.yaml");
    assert_eq!(
        words("explain 'a b' -H 'c: d' e"),
        ["explain", "a b", "-H", "c: d", "e"]
    );
    let folder = Folder::new();
    let compared = std::panic::catch_unwind(|| run_commands(&blocks, folder.path()));
    assert!(
        compared.is_err(),
        "another version is shown than is printed"
    );
    folder.write("a.yaml", blocks[0].text.as_bytes());
    assert_eq!(folder.run(&["check", "a.yaml"]).0, Some(1));
}
