//! What is no arithmetic: tests, messages, capacities, how many threads work.

use quote::quote;

/// Whether an attribute keeps a function or module out: tests, and what the compiler evaluates.
pub fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|a| {
        let text = quote!(#a).to_string();
        text.contains("cfg (test)") || text.contains("cfg (all (test") || text == "# [test]"
    })
}

/// Whether an attribute says that it is compiled for other machines, or with a GPU alone.
pub fn is_elsewhere(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|a| {
        let text = quote!(#a).to_string();
        let other = [
            "wasm32",
            "aarch64",
            "not (target_arch = \"x86_64\")",
            "not (one_level)",
            "loom",
        ];
        text.starts_with("# [cfg")
            && (other.iter().any(|o| text.contains(o)) || text == "# [cfg (feature = \"gpu\")]")
    })
}

/// Functions whose work is words, checks of files, pictures, faults.
pub fn says(name: &str) -> bool {
    [
        "fmt",
        "check",
        "message",
        "describe",
        "note",
        "serialize",
        "deserialize",
        "faults",
        "sizes",
        "small",
        "words",
        "error",
        "explain",
        "print",
        "say",
        "bytes",
        "memory",
        "cost",
        "flops",
        "svg",
        "draw",
        "html",
        "bench",
    ]
    .iter()
    .any(|w| name == *w || name.starts_with(&format!("{w}_")))
}

/// `Error::invalid(…)` and its like, and capacities.
pub fn is_error(function: &str) -> bool {
    function.contains("Error::") || function == "Err" || function.ends_with("with_capacity")
}

/// Methods whose arguments are messages or sizes that change no result.
pub fn changes_nothing(method: &str) -> bool {
    [
        "map_err",
        "ok_or",
        "ok_or_else",
        "expect",
        "reserve",
        "reserve_exact",
        "shrink_to_fit",
        "say",
        "with_max_len",
        "with_min_len",
    ]
    .contains(&method)
}

/// Whether a condition only decides if threads share the work: results don't depend on it, bit for bit.
pub fn is_about_threads(text: &str) -> bool {
    text.contains("PARALLEL")
}
