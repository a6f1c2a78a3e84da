/** So many characters has no honest value of a store, flannel's a few hundred; parsed, some texts take twenty times their size. */
export const MOST = 65_536
