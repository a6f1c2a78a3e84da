/** Files that are imported as text. Their text is part of the executable. */
declare module '*.nft' {
  const text: string
  export default text
}
declare module '*.conflist' {
  const text: string
  export default text
}
