/* The one place that makes elements. Content goes in as text, never as markup. */

/* make("p", {class: "quiet", hidden: true}, "text", child) */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === false || value === null || value === undefined) continue;
    element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== ""));
  return element;
}

/* Changes the text only when it differs: what is selected or focused stays so. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function byId(id) {
  const element = document.getElementById(id);
  if (element === null) throw new Error(`the page has no #${id}`);
  return element;
}
