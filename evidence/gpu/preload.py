"""Workers import torch and open the card before they join, so that no trial measures that."""

try:
    import torch
except ImportError:
    torch = None

if torch is not None and torch.cuda.is_available():
    square = torch.ones(256, 256, device="cuda")
    (square @ square).sum().item()
