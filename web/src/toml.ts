// Single settings of an experiment's text, which stays the visitor's: comments and order are kept.

/** Where a value ends that begins there: at the end of its line, or where its brackets are closed. */
function end(text: string, at: number): number {
  let depth = 0;
  for (let i = at; i < text.length; i++) {
    const c = text[i]!;
    if (c === '"') {
      i = text.indexOf('"', i + 1);
      if (i < 0) return text.length;
    } else if (c === "#") {
      if (depth === 0) return i;
      i = Math.max(text.indexOf("\n", i), i);
    } else if (c === "[" || c === "{") depth++;
    else if (c === "]" || c === "}") depth--;
    else if (c === "\n" && depth === 0) return i;
  }
  return text.length;
}

/** The first and the last character of a section's body; "" is what stands before all sections. */
function section(text: string, name: string): [number, number] | null {
  let from = 0;
  if (name !== "") {
    const head = new RegExp(`^\\[${name}\\][^\\n]*\\n?`, "m").exec(text);
    if (!head) return null;
    from = head.index + head[0].length;
  }
  const next = /^\[[a-z_.]+\]/m.exec(text.slice(from));
  return [from, next ? from + next.index : text.length];
}

function find(text: string, name: string, key: string): [number, number] | null {
  const body = section(text, name);
  if (!body) return null;
  const found = new RegExp(`^${key}\\s*=\\s*`, "m").exec(text.slice(...body));
  if (!found) return null;
  const at = body[0] + found.index + found[0].length;
  return [at, end(text, at)];
}

/** The value of a key as it is written. */
export function get(text: string, name: string, key: string): string | undefined {
  const at = find(text, name, key);
  return at ? text.slice(...at).trim() : undefined;
}

/** The text with another value, where there is that section. */
export function set(text: string, name: string, key: string, value: string): string {
  const at = find(text, name, key);
  if (at) {
    const rest = text.slice(at[1]);
    return text.slice(0, at[0]) + value + (rest.startsWith("#") ? "  " : "") + rest;
  }
  const body = section(text, name);
  if (!body) return text;
  return `${text.slice(0, body[0])}${key} = ${value}\n${text.slice(body[0])}`;
}

/** The text without a key. */
export function unset(text: string, name: string, key: string): string {
  const at = find(text, name, key);
  if (!at) return text;
  const line = text.lastIndexOf("\n", at[0]) + 1;
  return text.slice(0, line) + text.slice(at[1]).replace(/^[^\n]*\n?/, "");
}
