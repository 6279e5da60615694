//! `tranship.h`, its smaller sisters and the manual pages are made from the source of `crates/faces/capi`: `cargo
//! run -p xtask -- header write` renews them, `header check` holds them to it. So building the product needs no
//! generator, and a review sees every change of the interface of C programs.
//!
//! NOT here: the papers' names (`include/tranship/*.h`), which are written by hand over it.

mod pages;

use self::pages::{CRATE, functions};
use crate::findings::Findings;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use tranship_error::ErrorKind;

/// A header. It has a path below `include`, the folder of its functions in `src` (none: all files that are in no
/// folder), and a guard. It also has the text before its declarations and after its includes, and the text after them.
struct Header {
    path: &'static str,
    folder: Option<&'static str>,
    guard: &'static str,
    top: &'static str,
    after_includes: fn() -> String,
    bottom: &'static str,
}

const HEADERS: &[Header] = &[
    Header {
        path: "tranship.h",
        folder: None,
        guard: "TRANSHIP_H",
        top: TOP,
        after_includes: statuses,
        bottom: BOTTOM,
    },
    Header {
        path: "tranship/admin.h",
        folder: Some("admin"),
        guard: "TRANSHIP_ADMIN_H",
        top: ADMIN_TOP,
        after_includes: || ADMIN_TYPES.into(),
        bottom: "",
    },
    Header {
        path: "tranship/component.h",
        folder: Some("component"),
        guard: "TRANSHIP_COMPONENT_H",
        top: COMPONENT_TOP,
        after_includes: || COMPONENT_TYPES.into(),
        bottom: "",
    },
    Header {
        path: "tranship/queue.h",
        folder: Some("queue"),
        guard: "TRANSHIP_QUEUE_H",
        top: QUEUE_TOP,
        after_includes: || QUEUE_TYPES.into(),
        bottom: "",
    },
    Header {
        path: "tranship/service.h",
        folder: Some("service"),
        guard: "TRANSHIP_SERVICE_H",
        top: SERVICE_TOP,
        after_includes: || SERVICE_TYPES.into(),
        bottom: "",
    },
    Header {
        path: "tranship/topic.h",
        folder: Some("topic"),
        guard: "TRANSHIP_TOPIC_H",
        top: TOPIC_TOP,
        after_includes: || TOPIC_TYPES.into(),
        bottom: "",
    },
    Header {
        path: "tranship/mbufs.h",
        folder: Some("mbuf"),
        guard: "TRANSHIP_MBUFS_H",
        top: MBUFS_TOP,
        after_includes: || MBUFS_TYPES.into(),
        bottom: "",
    },
    Header {
        path: "tranship/zones.h",
        folder: Some("uma"),
        guard: "TRANSHIP_ZONES_H",
        top: ZONES_TOP,
        after_includes: || String::from("\n"),
        bottom: "",
    },
];

const MAP: &str = "crates/faces/capi/tranship.map";

/// Names in C of the types of the source.
const NAMES: &[(&str, &str)] = &[
    ("Buf", "tranship_buf"),
    ("Call", "tranship_call"),
    ("Client", "tranship_client"),
    ("Component", "tranship_component"),
    ("Consumer", "tranship_consumer"),
    ("ConsumerOptions", "tranship_consumer_options"),
    ("Item", "tranship_item"),
    ("Producer", "tranship_producer"),
    ("Publisher", "tranship_publisher"),
    ("QueueOptions", "tranship_queue_options"),
    ("Request", "tranship_request"),
    ("Service", "tranship_service"),
    ("ServiceOptions", "tranship_service_options"),
    ("Subscriber", "tranship_subscriber"),
    ("SubscriberOptions", "tranship_subscriber_options"),
    ("TopicOptions", "tranship_topic_options"),
    ("Domain", "tranship_domain"),
    ("Each", "tranship_m_each"),
    ("ExtFree", "tranship_ext_free"),
    ("Copy", "tranship_m_copy"),
    ("Iovec", "tranship_iovec"),
    ("Mbuf", "mbuf"),
    ("Mbufq", "mbufq"),
    ("MbufOptions", "tranship_mbuf_options"),
    ("Mbufs", "tranship_mbufs"),
    ("Pkthdr", "pkthdr"),
    ("Tag", "m_tag"),
    ("Uio", "uio"),
    ("UmaAlloc", "tranship_uma_alloc"),
    ("UmaCtor", "tranship_uma_ctor"),
    ("UmaDtor", "tranship_uma_dtor"),
    ("UmaFree", "tranship_uma_free"),
    ("UmaFini", "tranship_uma_fini"),
    ("UmaInit", "tranship_uma_init"),
    ("UmaMaxaction", "tranship_uma_maxaction"),
    ("Zone", "uma_zone"),
    ("DomainOptions", "tranship_domain_options"),
    ("Error", "tranship_error"),
    ("ChannelOptions", "tranship_channel_options"),
    ("Inbox", "tranship_inbox"),
    ("Listener", "tranship_listener"),
    ("Pool", "tranship_pool"),
    ("PoolOptions", "tranship_pool_options"),
    ("PoolStats", "tranship_pool_stats"),
    ("PollItem", "tranship_poll_item"),
    ("Receiver", "tranship_receiver"),
    ("Sender", "tranship_sender"),
    ("Status", "tranship_status"),
];

/// Checks that the files are those that the source makes.
pub(crate) fn check(root: &Path) -> Result<Findings> {
    let mut findings = Findings::default();
    for (path, text) in all(root)? {
        findings.saw();
        if std::fs::read_to_string(root.join(&path)).ok().as_deref() != Some(&text) {
            findings.error(format!(
                "{} is not what {CRATE}/src says; `cargo run -p xtask -- header write` renews it",
                path.display()
            ));
        }
    }
    Ok(findings)
}

/// Makes them so.
pub(crate) fn write(root: &Path) -> Result<()> {
    for (path, text) in all(root)? {
        let path = root.join(path);
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn all(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut headers = Vec::new();
    for header in HEADERS {
        let path = PathBuf::from(CRATE).join("include").join(header.path);
        headers.push((path, header.made(root)?));
    }
    let texts: Vec<&str> = headers.iter().map(|(_, text)| text.as_str()).collect();
    let texts = texts.concat();
    let mut all = pages::all(root, &texts)?;
    all.push((MAP.into(), map(&texts)));
    all.extend(headers);
    Ok(all)
}

impl Header {
    /// Returns the files of its functions; cbindgen reads the modules that a file names, too.
    fn sources(&self, root: &Path) -> Result<Vec<PathBuf>> {
        let src = root.join(CRATE).join("src");
        if let Some(folder) = self.folder {
            return Ok(vec![src.join(folder).join("mod.rs")]);
        }
        let sources = std::fs::read_dir(src).context(CRATE)?;
        let mut sources: Vec<PathBuf> = sources.flatten().map(|entry| entry.path()).collect();
        sources.retain(|path| path.is_file() && !path.ends_with("lib.rs"));
        sources.sort();
        Ok(sources)
    }

    fn made(&self, root: &Path) -> Result<String> {
        let mut builder = cbindgen::Builder::new().with_config(self.config());
        for source in self.sources(root)? {
            builder = builder.with_src(source);
        }
        let mut text = Vec::new();
        builder.generate().context("cbindgen")?.write(&mut text);
        let text = String::from_utf8(text).context("the header")?;
        if self.bottom.is_empty() {
            return Ok(tidied(&text));
        }
        // A trailer would stand behind the guard.
        let (all, end) = text.rsplit_once("#endif").context("no guard")?;
        Ok(tidied(&format!("{all}{}\n\n#endif{end}", self.bottom)))
    }

    fn config(&self) -> cbindgen::Config {
        let mut config = cbindgen::Config {
            language: cbindgen::Language::C,
            header: Some(self.top.into()),
            include_guard: Some(self.guard.into()),
            cpp_compat: true,
            no_includes: true,
            sys_includes: vec!["stddef.h".into(), "stdint.h".into()],
            after_includes: Some((self.after_includes)()),
            style: cbindgen::Style::Both,
            documentation_style: cbindgen::DocumentationStyle::Doxy,
            documentation: true,
            usize_is_size_t: true,
            line_length: 100,
            tab_width: 4,
            ..cbindgen::Config::default()
        };
        if self.folder.is_some() {
            config.sys_includes.clear();
            config.includes = vec!["../tranship.h".into()];
            // FreeBSD's `struct mbuf`, which takes no other name.
            config.style = cbindgen::Style::Tag;
        }
        config.function.args = cbindgen::Layout::Auto;
        config.export.exclude = vec!["Status".into()];
        let names = NAMES
            .iter()
            .map(|(rust, c)| ((*rust).to_owned(), (*c).to_owned()));
        config.export.rename = names.collect();
        config
    }
}

/// Constants get the library's prefix; a comment of one line takes one; no line ends in spaces.
fn tidied(text: &str) -> String {
    let mut all: Vec<String> = Vec::new();
    for line in text.lines() {
        let line = line.trim_end();
        let constant = line.strip_prefix("#define ");
        let constant = constant.filter(|rest| !rest.starts_with("TRANSHIP_"));
        match (constant, &mut all[..]) {
            (Some(rest), _) => all.push(format!("#define TRANSHIP_{rest}")),
            (None, [.., begin, text]) if line.trim() == "*/" && begin.trim() == "/**" => {
                let said = text.trim_start().trim_start_matches("* ");
                *begin = format!("{begin} {said} */");
                all.pop();
            }
            _ => all.push(line.to_owned()),
        }
    }
    all.join("\n") + "\n"
}

/// Returns the table of kinds of errors (`docs/errors.md`), as C has it.
fn statuses() -> String {
    let constant = |kind: &ErrorKind| {
        let mut name = String::new();
        for c in kind.name().chars() {
            if c.is_ascii_uppercase() && !name.is_empty() {
                name.push('_');
            }
            name.push(c.to_ascii_uppercase());
        }
        format!(
            "    /** {}. What to do: {}. */\n    TRANSHIP_ERR_{name} = {},\n",
            kind.meaning(),
            kind.advice(),
            kind.number()
        )
    };
    let all: String = ErrorKind::ALL.iter().map(constant).collect();
    format!(
        "{VERSION}{STATUS}enum {{\n    /** Done. */\n    TRANSHIP_OK = 0,\n{all}}};\n{TIMES}{}",
        inline()
    )
}

fn inline() -> String {
    let text =
        "/** The most bytes that a message can have inline. */\n#define TRANSHIP_INLINE_BYTES";
    format!("{text} {}\n", tranship_ring::INLINE_BYTES)
}

/// Returns which symbols the shared library shows, and since which version.
fn map(header: &str) -> String {
    let mut names: Vec<&str> = functions(header).collect();
    names.sort_unstable();
    let names: String = names
        .iter()
        .map(|name| format!("        {name};\n"))
        .collect();
    format!(
        "/* Made from the source by `cargo run -p xtask -- header write`. What a release has shown never leaves its block. */\nTRANSHIP_0 {{\n    global:\n{names}    local:\n        *;\n}};\n"
    )
}

const TOP: &str = "/*
 * tranship: moves large data between isolated processes without copying it.
 *
 * Made from the source by `cargo run -p xtask -- header write`; tranship(3) is the manual.
 *
 * Handles are opaque. A NULL handle is an error that says so, and to close or release NULL does nothing. Close a handle when no call with
 * it is under way or will begin; to be able to stop a thread, let it wait in turns or by tranship_poll, and join it before.
 *
 * Functions that can fail return a tranship_status, and take a `tranship_error **` last: NULL if the status is enough (then nothing is
 * allocated for an error), else a variable that is NULL at first. After each call it holds the call's error, or NULL; what it held before
 * is freed. There is no error state beside that, neither global nor a thread's.
 *
 * The library starts no thread unless asked to, and installs no signal handler. It ends the program, by abort(3) and with a line on standard
 * error, only where free(3) would: a handle is closed twice, a tranship_buf used whose contents went through a bitwise copy, or an mbuf used
 * that was freed.
 */";

const ADMIN_TOP: &str = "/*
 * tranship: an operator's questions. An ordinary program asks none of them.
 *
 * Made from the source by `cargo run -p xtask -- header write`; tranship_admin(3) is the manual.
 */";

const ADMIN_TYPES: &str = "
typedef struct tranship_pool_stats tranship_pool_stats;
";

const COMPONENT_TOP: &str = "/*
 * tranship: components of `tranship run`, which find their ends by their names.
 *
 * Made from the source by `cargo run -p xtask -- header write`; tranship_component(3) is the manual.
 */";

/// cbindgen knows the types of one folder.
const COMPONENT_TYPES: &str = "
#include \"queue.h\"
#include \"service.h\"
#include \"topic.h\"

typedef struct tranship_component tranship_component;
";

const TOPIC_TOP: &str = "/*
 * tranship: topics: one publisher's messages to any number of subscribers.
 *
 * Made from the source by `cargo run -p xtask -- header write`; tranship_topic(3) is the manual.
 */";

const TOPIC_TYPES: &str = "
typedef struct tranship_publisher tranship_publisher;
typedef struct tranship_subscriber tranship_subscriber;
typedef struct tranship_topic_options tranship_topic_options;
typedef struct tranship_subscriber_options tranship_subscriber_options;
";

const SERVICE_TOP: &str = "/*
 * tranship: services: requests and answers. A name has many clients and any number of workers.
 *
 * Made from the source by `cargo run -p xtask -- header write`; tranship_service(3) is the manual.
 */";

const SERVICE_TYPES: &str = "
typedef struct tranship_service tranship_service;
typedef struct tranship_request tranship_request;
typedef struct tranship_client tranship_client;
typedef struct tranship_call tranship_call;
typedef struct tranship_service_options tranship_service_options;
";

const QUEUE_TOP: &str = "/*
 * tranship: queues: many producers, many consumers, each item taken by exactly one.
 *
 * Made from the source by `cargo run -p xtask -- header write`; tranship_queue(3) is the manual.
 */";

const QUEUE_TYPES: &str = "
typedef struct tranship_producer tranship_producer;
typedef struct tranship_consumer tranship_consumer;
typedef struct tranship_item tranship_item;
typedef struct tranship_queue_options tranship_queue_options;
typedef struct tranship_consumer_options tranship_consumer_options;
";

const MBUFS_TOP: &str = "/*
 * tranship: network buffers, after mbuf(9). <tranship/mbuf.h> gives FreeBSD's own names, and says what differs; here is what the library has.
 *
 * Made from the source by `cargo run -p xtask -- header write`; tranship_mbuf(3) is the manual.
 *
 * A pointer to an mbuf is the chain that begins with it. What fails returns NULL, or a number of errno(3). NULL for an mbuf fails.
 */";

const MBUFS_TYPES: &str = "
#include <sys/uio.h>

typedef struct iovec tranship_iovec;
typedef struct tranship_mbufs tranship_mbufs;
typedef struct tranship_mbuf_options tranship_mbuf_options;
";

const ZONES_TOP: &str = "/*
 * tranship: zones of items in this process's own memory, after uma(9). <tranship/uma.h> gives FreeBSD's own names, and says what differs;
 * here is what the library has.
 *
 * Made from the source by `cargo run -p xtask -- header write`; tranship_uma(3) is the manual.
 */";

const VERSION: &str = "
#define TRANSHIP_VERSION_MAJOR 0
#define TRANSHIP_VERSION_MINOR 1
#define TRANSHIP_VERSION_PATCH 0
";

const STATUS: &str = "
/**
 * What a call returns: TRANSHIP_OK, or what went wrong. Numbers are stable, and the same in Rust, in the messages between processes and in
 * docs/errors.md. There will be more.
 */
typedef int32_t tranship_status;

";

const TIMES: &str = "
/** As a timeout, in nanoseconds: do not wait. Any number below 0 but TRANSHIP_FOREVER means the same. */
#define TRANSHIP_NOW INT64_C(0)
/** As a timeout: wait without end. */
#define TRANSHIP_FOREVER INT64_C(-1)
/** As a timeout: so many milliseconds. */
#define TRANSHIP_MS(n) ((int64_t)(n) * INT64_C(1000000))

";

const BOTTOM: &str = "#ifdef __cplusplus
extern \"C\" {
#endif

/**
 * The bytes of a buffer, a message or inline bytes, buf->len of them; NULL of an aggregate (tranship_aggregate_piece,
 * tranship_copy_out). They are there until the buf is sent or released. Inline bytes are inside the struct.
 */
static inline void *tranship_data(const tranship_buf *buf)
{
    return buf->kind == TRANSHIP_BUF_INLINE ? (void *)(uintptr_t)buf->words : buf->ptr;
}

#ifdef __cplusplus
}
#endif";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_in_what_is_printed() {
        let header = "/* a tranship_no( */\ntranship_status tranship_a(int b,\n    int c);\nconst char *tranship_d(void);\ntypedef int (*tranship_e)(int);\n";
        let found: Vec<_> = functions(header).collect();
        assert_eq!(found, ["tranship_a", "tranship_d"]);
        let map = map(header);
        assert!(map.contains("        tranship_a;\n        tranship_d;\n    local:"));
    }

    #[test]
    fn constants_have_the_prefix_and_short_comments_one_line() {
        assert_eq!(
            tidied("#define A 1 \n#define TRANSHIP_B 2"),
            "#define TRANSHIP_A 1\n#define TRANSHIP_B 2\n"
        );
        let comments = "/**\n * One.\n */\n  /**\n   * Two\n   * lines.\n   */\n";
        let short = "/** One. */\n  /**\n   * Two\n   * lines.\n   */\n";
        assert_eq!(tidied(comments), short);
    }
}
