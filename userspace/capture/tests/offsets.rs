//! The committed table of structure offsets against the debug information of the interpreters at hand.

// The generator itself: debug information is read in one place.
#[path = "../../../xtask/src/offsets.rs"]
#[expect(dead_code, unreachable_pub, reason = "only the reading half is of use here")]
mod offsets;

const TABLE: &str = include_str!("../src/cpython/offsets.toml");

#[test]
fn the_committed_table_is_what_the_debug_information_says() {
    let (generated, skipped) = offsets::generate(offsets::find_interpreters());
    for (path, why) in skipped {
        println!("skipped {}: {why:#}", path.display());
    }
    let compared = offsets::compare(TABLE, &generated).unwrap();
    println!(
        "compared with {}",
        if compared.is_empty() { "nothing: no debug information".into() } else { compared.join(", ") }
    );
    if compared.is_empty() {
        return;
    }
    // The comparison bites: one number changed is one sentence that names it.
    let (_, one) = generated.iter().next_back().unwrap();
    let name = one.fields["code"]["name"].to_string();
    let changed = TABLE.replace(&format!("name = {name}\n"), "name = 4096\n");
    assert_ne!(changed, TABLE);
    let error = offsets::compare(&changed, &generated).unwrap_err().to_string();
    assert!(error.starts_with("code.name of CPython 3.") && error.contains("the table has 4096"), "{error}");
}

#[test]
fn what_is_no_interpreter_is_skipped_with_a_reason() {
    let (generated, skipped) = offsets::generate(vec!["/bin/sh".into(), "/etc/passwd".into(), "/nonexistent".into()]);
    assert!(generated.is_empty());
    let reasons: Vec<String> = skipped.iter().map(|(_, why)| why.to_string()).collect();
    assert_eq!(reasons, ["it has no debug information", "not an ELF file", "cannot read it"]);
}
