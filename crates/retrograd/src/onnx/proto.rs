//! The part of ONNX's file format that a network needs: messages of protocol buffers, written by
//! hand.
//!
//! A message is its fields one after the other: a key, `number·8 + type`, and the value; type 0 is an
//! integer in groups of seven bits, 2 bytes with their length before them, 5 four bytes. The numbers
//! of the fields are those of ONNX's `onnx.proto`.

/// What an array of a model holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    F32 = 1,
    I64 = 7,
    Text = 8,
    F64 = 11,
}

/// A message under construction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn key(&mut self, field: u32, wire: u32) {
        self.varint(u64::from(field << 3 | wire));
    }

    pub fn int(mut self, field: u32, value: i64) -> Self {
        self.key(field, 0);
        self.varint(value as u64);
        self
    }

    pub fn float(mut self, field: u32, value: f32) -> Self {
        self.key(field, 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    pub fn bytes(mut self, field: u32, value: &[u8]) -> Self {
        self.key(field, 2);
        self.varint(value.len() as u64);
        self.0.extend(value);
        self
    }

    pub fn text(self, field: u32, value: &str) -> Self {
        self.bytes(field, value.as_bytes())
    }

    pub fn message(self, field: u32, value: &Message) -> Self {
        self.bytes(field, &value.0)
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// An option of an operator.
#[derive(Clone, Debug)]
pub(crate) enum Attribute<'a> {
    Int(i64),
    Ints(&'a [usize]),
    Float(f32),
    Text(&'a str),
}

impl Attribute<'_> {
    fn message(&self, name: &str) -> Message {
        let message = Message::default().text(1, name);
        match *self {
            Attribute::Float(value) => message.float(2, value).int(20, 1),
            Attribute::Int(value) => message.int(3, value).int(20, 2),
            Attribute::Text(value) => message.text(4, value).int(20, 3),
            Attribute::Ints(values) => values
                .iter()
                .fold(message, |m, &v| m.int(8, v as i64))
                .int(20, 7),
        }
    }
}

/// An operator at its place.
pub(crate) fn node(
    operator: &str,
    inputs: &[&str],
    output: &str,
    attributes: &[(&str, Attribute<'_>)],
) -> Message {
    let mut node = Message::default();
    for input in inputs {
        node = node.text(1, input);
    }
    node = node.text(2, output).text(3, output).text(4, operator);
    for (name, attribute) in attributes {
        node = node.message(5, &attribute.message(name));
    }
    node
}

/// The values of a constant.
pub(crate) enum Values<'a> {
    F32(&'a [f32]),
    F64(&'a [f64]),
    I64(&'a [i64]),
    Text(&'a [&'a str]),
}

/// A constant.
pub(crate) fn tensor(name: &str, shape: &[usize], values: Values<'_>) -> Message {
    let of = |kind: Kind| {
        let message = Message::default();
        let message = shape.iter().fold(message, |m, &n| m.int(1, n as i64));
        message.int(2, kind as i64).text(8, name)
    };
    let raw = |bytes: &mut dyn Iterator<Item = u8>| bytes.collect::<Vec<u8>>();
    match values {
        Values::F32(v) => of(Kind::F32).bytes(9, &raw(&mut v.iter().flat_map(|v| v.to_le_bytes()))),
        Values::F64(v) => of(Kind::F64).bytes(9, &raw(&mut v.iter().flat_map(|v| v.to_le_bytes()))),
        Values::I64(v) => of(Kind::I64).bytes(9, &raw(&mut v.iter().flat_map(|v| v.to_le_bytes()))),
        Values::Text(v) => v.iter().fold(of(Kind::Text), |m, text| m.text(6, text)),
    }
}

/// A length along an axis of an input or an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Axis {
    Fixed(usize),
    /// Whatever the caller brings.
    Named(&'static str),
}

/// An input or an output of a model.
pub(crate) fn value(name: &str, kind: Kind, shape: &[Axis]) -> Message {
    let axes = shape.iter().fold(Message::default(), |m, axis| {
        let axis = match axis {
            Axis::Fixed(n) => Message::default().int(1, *n as i64),
            Axis::Named(name) => Message::default().text(2, name),
        };
        m.message(1, &axis)
    });
    let tensor = Message::default().int(1, kind as i64).message(2, &axes);
    let kind = Message::default().message(1, &tensor);
    Message::default().text(1, name).message(2, &kind)
}
