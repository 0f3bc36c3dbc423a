// A sample's label: the number of its class, -1 for none; where samples may have several classes, a list of numbers.

// The numbers of the classes, in a list.
export function numbersOf(label) {
  if (Array.isArray(label)) return label;
  return label < 0 ? [] : [label];
}

export function isLabeled(label) {
  return numbersOf(label).length > 0;
}

export function namesOf(label, classes) {
  return numbersOf(label).map((number) => classes[number].name).join(", ");
}

// The label with this class added, or taken off if it was there; for samples that may have several.
export function toggled(label, number) {
  const others = label.filter((one) => one !== number);
  return others.length < label.length ? others : [...others, number].sort((one, other) => one - other);
}
