//! The text that both ends of a channel compare: names, types and places.

use std::fmt::{self, Display, Write};

/// The layout of a [`Message`]. The derive macro of [`Message`] describes it.
///
/// Both ends of a channel compare the layout's text. The text has a line for the type, then one for each field, by rising offsets:
///
/// ```
/// # mod tranship { pub use tranship_typed as typed; }
/// use tranship::typed::{Layout, Message};
///
/// assert_eq!(<[f32; 3]>::layout().to_string(), "[f32; 3]: 12 bytes, aligned to 4\n");
/// let point = Layout::new("Point", 8, 4)
///     .field("x", f32::layout(), 0)
///     .field("y", f32::layout(), 4);
/// assert_eq!(point.to_string(), "Point: 8 bytes, aligned to 4\nx: f32 at 0\ny: f32 at 4\n");
/// ```
///
/// The names of types are Rust's: `u8` to `u64`, `i8` to `i64`, `f32`, `f64`, `bool`, `[T; N]`. A field that is a struct is followed by its own
/// fields, as `pose.x: f64 at 8`. Fields of an array's elements are at offsets within their element, as `points[].x: f32 at 0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    name: String,
    bytes: usize,
    align: usize,
    fields: Vec<Field>,
    variants: Vec<(String, i128)>,
    /// Items behind the message: their layout, and the offset of the first.
    items: Option<Box<(Layout, usize)>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    name: String,
    layout: Layout,
    offset: usize,
}

impl Layout {
    /// Describes a type with a name and a size in bytes. Its values lie at multiples of `align` bytes.
    pub fn new(name: impl Into<String>, bytes: usize, align: usize) -> Layout {
        Layout {
            name: name.into(),
            bytes,
            align,
            fields: Vec::new(),
            variants: Vec::new(),
            items: None,
        }
    }

    /// Describes the Rust type `T` under a name, without its fields.
    pub fn of<T>(name: impl Into<String>) -> Layout {
        Layout::new(name, size_of::<T>(), align_of::<T>())
    }

    /// Adds a field with its layout, at an offset in bytes.
    pub fn field(mut self, name: &str, layout: Layout, offset: usize) -> Layout {
        let name = name.into();
        self.fields.push(Field {
            name,
            layout,
            offset,
        });
        self
    }

    /// Adds a variant of an enum.
    pub fn variant(mut self, name: &str, value: i128) -> Layout {
        self.variants.push((name.into(), value));
        self
    }

    /// Describes an array of `count` elements of this layout.
    pub(crate) fn times(self, count: usize) -> Layout {
        let name = format!("[{}; {count}]", self.name);
        let mut array = Layout::new(name, self.bytes * count, self.align);
        array.fields.push(Field {
            name: "[]".into(),
            layout: self,
            offset: 0,
        });
        array
    }

    /// Describes this type with items of another layout behind it. The first item is at `offset`.
    pub(crate) fn followed_by(mut self, items: Layout, offset: usize) -> Layout {
        self.items = Some(Box::new((items, offset)));
        self
    }

    /// Returns the name of the type.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the fixed size in bytes, without the items behind the message.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Describes the type in C. The header has a struct for the type and for each struct in it, and lets the C compiler
    /// check the offsets. It also has the layout's text as `NAME_MESSAGE_TYPE`, for `message_type` in C's
    /// `tranship_channel_options`.
    ///
    /// The types of fields are those of `<stdint.h>`. A `bool` is a `uint8_t`. An enum of one byte is a `uint8_t` too,
    /// and its variants are constants.
    pub fn c_header(&self) -> String {
        let name = c_name(&self.name).to_uppercase();
        let mut text = format!(
            "/* Written by Layout::c_header of the Rust type {}. */\n#ifndef {name}_MESSAGE_H\n#define {name}_MESSAGE_H\n\n#include <stddef.h>\n#include <stdint.h>\n\n",
            self.name
        );
        let mut known = Vec::new();
        self.declare(&mut text, &mut known);
        if let Some((items, _)) = self.items.as_deref() {
            items.declare(&mut text, &mut known);
        }
        text += &format!("#define {name}_MESSAGE_TYPE");
        for line in self.to_string().lines() {
            text += &format!(" \\\n    \"{line}\\n\"");
        }
        text + "\n\n#endif\n"
    }

    /// Declares the structs and enums that the type is made of, each once and before its use.
    fn declare(&self, text: &mut String, known: &mut Vec<String>) {
        for field in &self.fields {
            field.layout.declare(text, known);
        }
        let is_array = self.fields.iter().any(|field| field.name == "[]");
        let is_plain = self.fields.is_empty() && self.variants.is_empty();
        if is_array || is_plain || known.contains(&self.name) {
            return;
        }
        known.push(self.name.clone());
        let (name, bytes) = (&self.name, self.bytes);
        for (variant, value) in &self.variants {
            *text += &format!("#define {name}_{variant} {value}\n");
        }
        if !self.variants.is_empty() {
            *text += &format!("typedef uint{}_t {name};\n\n", 8 * bytes);
            return;
        }
        *text += &format!("typedef struct {name} {{\n");
        for field in &self.fields {
            let (kind, array) = field.layout.in_c();
            *text += &format!("    {kind} {}{array};\n", field.name);
        }
        *text += &format!(
            "}} {name};\n_Static_assert(sizeof({name}) == {bytes}, \"{name}: its size\");\n"
        );
        for Field {
            name: field,
            offset,
            ..
        } in &self.fields
        {
            *text += &format!(
                "_Static_assert(offsetof({name}, {field}) == {offset}, \"{name}.{field}: its place\");\n"
            );
        }
        *text += "\n";
    }

    /// Returns the type in C, and the text that follows a field's name.
    fn in_c(&self) -> (String, String) {
        if let Some(element) = self.fields.iter().find(|field| field.name == "[]") {
            let count = self.bytes / element.layout.bytes.max(1);
            let (kind, rest) = element.layout.in_c();
            return (kind, format!("[{count}]{rest}"));
        }
        let kind = match self.name.as_str() {
            "f32" => "float".to_owned(),
            "f64" => "double".to_owned(),
            "bool" => "uint8_t".to_owned(),
            "u128" => "unsigned __int128".to_owned(),
            "i128" => "__int128".to_owned(),
            name => match name.split_at_checked(1) {
                Some(("u", bits)) if bits.parse::<u8>().is_ok() => format!("uint{bits}_t"),
                Some(("i", bits)) if bits.parse::<u8>().is_ok() => format!("int{bits}_t"),
                _ => name.to_owned(),
            },
        };
        (kind, String::new())
    }

    /// Writes a line for each field, whose name begins with `path`.
    fn lines(&self, path: &str, base: usize, f: &mut impl Write) -> fmt::Result {
        for (name, value) in &self.variants {
            writeln!(f, "{path}{name} = {value}")?;
        }
        let mut fields: Vec<&Field> = self.fields.iter().collect();
        fields.sort_by_key(|field| field.offset);
        for Field {
            name,
            layout,
            offset,
        } in fields
        {
            let offset = base + offset;
            match name.as_str() {
                // An array's line names the type of its elements. The elements' fields are at offsets within the
                // element.
                "[]" => layout.lines(&format!("{}[].", path.trim_end_matches('.')), 0, f)?,
                _ => {
                    writeln!(f, "{path}{name}: {} at {offset}", layout.name)?;
                    layout.lines(&format!("{path}{name}."), offset, f)?;
                }
            }
        }
        Ok(())
    }
}

/// Turns a name into one that C allows.
fn c_name(name: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    name.chars().map(fits).collect()
}

impl Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Layout {
            name, bytes, align, ..
        } = self;
        match self.items.as_deref() {
            None => writeln!(f, "{name}: {bytes} bytes, aligned to {align}")?,
            Some((items, offset)) => writeln!(
                f,
                "{name} + [{}]: {bytes} bytes, then items of {} bytes from {offset} on, aligned to {}",
                items.name,
                items.bytes,
                align.max(&items.align)
            )?,
        }
        self.lines("", 0, f)?;
        match self.items.as_deref() {
            Some((items, _)) => items.lines("[].", 0, f),
            None => Ok(()),
        }
    }
}
